//! Worlds of the newest kind, run once for all tests that look at such worlds, because that takes long
//! without optimization.

use std::ops::ControlFlow;
use std::sync::OnceLock;

use zk_tests::draw::Draw;

use crate::cuts::Cuts;
use crate::fleet::work_in_order;
use crate::history::What;
use crate::run::{Report, drawn, run};
use crate::world::plan::{FIRST_SEED, FaultKind};

/// How many worlds these are.
const SIZE: u64 = 48;
/// How many of them run beside each other.
const JOBS: usize = 3;

static NEWEST: OnceLock<Vec<Report>> = OnceLock::new();

/// Returns the reports of the first seeds of the newest kind.
pub(crate) fn newest() -> &'static [Report] {
    NEWEST.get_or_init(|| {
        let mut reports = Vec::new();
        work_in_order(FIRST_SEED..FIRST_SEED + SIZE, JOBS, run, |report| {
            reports.push(report);
            ControlFlow::Continue(())
        });
        reports
    })
}

/// Returns what the strikes of a kind of faults did in these worlds.
pub(crate) fn strikes(kind: FaultKind) -> Vec<&'static str> {
    let prefix = format!("{kind:?}: ");
    let events = newest().iter().flat_map(|report| &report.events);
    let texts = events.filter_map(|event| match &event.what {
        What::Fault { text, .. } => text.strip_prefix(&prefix),
        _ => None,
    });
    texts.collect()
}

/// Returns whether the world of a seed has faults of this kind.
pub(crate) fn may_have(seed: u64, kind: FaultKind) -> bool {
    drawn(seed, &mut Draw::new(seed), &Cuts::default()).0.faults.contains(&kind)
}
