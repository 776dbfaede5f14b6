//! The graph of files and their dependencies. It finds cycles and describes them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Default)]
pub(crate) struct Graph {
    /// The first edge between each pair of files.
    edges: BTreeMap<(String, String), Edge>,
    /// Pairs of files that form one unit, and the reason.
    joins: Vec<(String, String, String)>,
}

pub(crate) struct Edge {
    pub(crate) from: String,
    pub(crate) to: String,
    /// Where `from` mentions `path`, which `to` defines.
    pub(crate) line: usize,
    pub(crate) path: String,
}

impl Graph {
    pub(crate) fn add(&mut self, edge: Edge) {
        self.edges.entry((edge.from.clone(), edge.to.clone())).or_insert(edge);
    }

    pub(crate) fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.edges.values()
    }

    /// Joins the units of two files.
    pub(crate) fn join(&mut self, a: &str, b: &str, reason: &str) {
        self.joins.push((a.to_owned(), b.to_owned(), reason.to_owned()));
    }

    /// Describes the shortest cycles, so that every unit in a cycle occurs in one of them.
    pub(crate) fn cycles(&self) -> Vec<String> {
        let units = self.units();
        let mut covered = BTreeSet::new();
        let mut described = Vec::new();
        for unit in units.values().copied().collect::<BTreeSet<_>>() {
            if covered.contains(unit) {
                continue;
            }
            if let Some(cycle) = self.shortest_cycle(unit, &units) {
                covered.extend(cycle.iter().filter_map(|edge| units.get(&*edge.from).copied()));
                described.push(self.describe(&cycle, &units));
            }
        }
        described
    }

    /// Returns the name of each file's unit, which is the name of the first file in the unit.
    fn units(&self) -> BTreeMap<&str, &str> {
        let files = self.edges.keys().flat_map(|(from, to)| [&**from, &**to]);
        let mut units: BTreeMap<&str, &str> = files.map(|file| (file, file)).collect();
        for (a, b, _) in &self.joins {
            let unit_of = |file: &'_ str, units: &BTreeMap<&str, &str>| {
                units.get(file).map(|unit| (*unit).to_owned())
            };
            if let (Some(a), Some(b)) = (unit_of(a, &units), unit_of(b, &units)) {
                let names: Vec<&str> = units.values().copied().collect();
                let first = names.into_iter().find(|unit| *unit == a.as_str().min(&b));
                for unit in units.values_mut().filter(|unit| **unit == a || **unit == b) {
                    *unit = first.expect("it is one of the two");
                }
            }
        }
        units
    }

    fn shortest_cycle(&self, start: &str, units: &BTreeMap<&str, &str>) -> Option<Vec<&Edge>> {
        let unit = |file: &str| units.get(file).copied().unwrap_or_default();
        // The edge through which the search has entered each unit.
        let mut entered: BTreeMap<&str, &Edge> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(current) = queue.pop_front() {
            for edge in self.edges.values().filter(|edge| unit(&edge.from) == current) {
                let next = unit(&edge.to);
                if next == current || entered.contains_key(next) {
                    continue;
                }
                entered.insert(next, edge);
                queue.push_back(next);
            }
        }
        let mut cycle = vec![*entered.get(start)?];
        while let Some(first) = cycle.last().filter(|edge| unit(&edge.from) != start) {
            cycle.push(entered.get(unit(&first.from))?);
        }
        cycle.reverse();
        Some(cycle)
    }

    fn describe(&self, cycle: &[&Edge], units: &BTreeMap<&str, &str>) -> String {
        let mut text = format!("a cycle of {} files:", cycle.len());
        for Edge { from, to, line, path } in cycle {
            text.push_str(&format!("\n    {from}:{line} mentions `{path}` of {to}"));
        }
        let members: BTreeSet<&str> =
            cycle.iter().filter_map(|edge| units.get(&*edge.from).copied()).collect();
        for (a, b, reason) in &self.joins {
            if units.get(&**a).is_some_and(|unit| members.contains(unit)) {
                text.push_str(&format!("\n    ({a} and {b} are one unit: {reason})"));
            }
        }
        text
    }
}
