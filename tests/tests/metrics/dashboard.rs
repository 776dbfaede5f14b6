//! The panels of the dashboard.

use crate::recorder::Exported;

/// The panels of a row, and the size of one in the grid.
const COLUMNS: usize = 3;
const PANEL_WIDTH: usize = 8;
const PANEL_HEIGHT: usize = 8;

/// How the list of panels ends, which ends the file.
const END: &str = "\n  }\n ]\n}\n";

/// Returns the dashboard with a panel for each metric that it does not show.
pub(crate) fn completed(dashboard: &str, metrics: &[Exported]) -> String {
    let mut dashboard = dashboard.to_owned();
    for metric in metrics {
        if !shows(&dashboard, &metric.name) {
            let before = dashboard.strip_suffix(END).expect("the panels are at the end");
            let panels = dashboard.matches("\n   \"gridPos\"").count();
            dashboard = format!("{before}\n  }},\n{}{END}", panel(metric, panels));
        }
    }
    dashboard
}

/// Returns whether a query uses the metric.
pub(crate) fn shows(dashboard: &str, metric: &str) -> bool {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let queries = dashboard.lines().filter(|line| line.trim_start().starts_with("\"expr\""));
    queries.flat_map(|query| query.split(|it| !is_name(it))).any(|word| {
        let end = word.strip_prefix(metric);
        end.is_some_and(|end| ["", "_bucket", "_sum", "_count"].contains(&end))
    })
}

/// Returns the panel of a metric, which follows this many others.
fn panel(metric: &Exported, others: usize) -> String {
    let Exported { name, kind, unit, labels, meaning } = metric;
    let selected = "{instance=~\\\"$instance\\\"}[$__rate_interval]";
    let (by, legend) = match &**labels {
        [] => ("instance".to_owned(), "{{instance}}".to_owned()),
        labels => (labels.join(", "), format!("{{{{{}}}}}", labels.join("}} {{"))),
    };
    let quantile = |of: &str| {
        format!("histogram_quantile({of}, sum by (le, {by}) (rate({name}_bucket{selected})))")
    };
    let (shown_in, queries) = match (*kind, &**unit) {
        ("histogram", _) => {
            let legends = [format!("{legend} p50"), format!("{legend} p99")];
            ("s", [quantile("0.5"), quantile("0.99")].into_iter().zip(legends).collect())
        }
        ("gauge", _) => {
            let selected = "{instance=~\\\"$instance\\\"}";
            ("none", vec![(format!("sum by ({by}) ({name}{selected})"), legend)])
        }
        (_, "bytes") => ("Bps", vec![(format!("sum by ({by}) (rate({name}{selected}))"), legend)]),
        _ => ("none", vec![(format!("sum by ({by}) (increase({name}{selected}))"), legend)]),
    };
    let queries: Vec<_> = ["A", "B"].iter().zip(&queries).map(query).collect();
    let (x, y) = (others % COLUMNS * PANEL_WIDTH, others / COLUMNS * PANEL_HEIGHT);
    PANEL
        .trim_matches('\n')
        .replace("<id>", &(others + 1).to_string())
        .replace("<title>", &title(name))
        .replace("<meaning>", &meaning.replace('\\', "\\\\").replace('"', "\\\""))
        .replace("<unit>", shown_in)
        .replace("<x>", &x.to_string())
        .replace("<y>", &y.to_string())
        .replace("<w>", &PANEL_WIDTH.to_string())
        .replace("<h>", &PANEL_HEIGHT.to_string())
        .replace("<queries>", &queries.join(",\n"))
}

fn query((id, (expression, legend)): (&&str, &(String, String))) -> String {
    QUERY
        .trim_matches('\n')
        .replace("<id>", id)
        .replace("<expression>", expression)
        .replace("<legend>", legend)
}

/// Returns the words of a name, without the prefix and the end that all names of a kind have.
fn title(name: &str) -> String {
    let name = name.strip_prefix("zk_").unwrap_or(name);
    let name = name.strip_suffix("_total").unwrap_or(name).replace('_', " ");
    let (first, rest) = name.split_at(1);
    format!("{}{rest}", first.to_uppercase())
}

const PANEL: &str = r#"
  {
   "id": <id>,
   "type": "timeseries",
   "title": "<title>",
   "description": "<meaning>",
   "datasource": {
    "type": "prometheus",
    "uid": "${datasource}"
   },
   "fieldConfig": {
    "defaults": {
     "unit": "<unit>",
     "min": 0
    },
    "overrides": []
   },
   "gridPos": {
    "x": <x>,
    "y": <y>,
    "w": <w>,
    "h": <h>
   },
   "targets": [
<queries>
   ]"#;

const QUERY: &str = r#"
    {
     "refId": "<id>",
     "expr": "<expression>",
     "legendFormat": "<legend>",
     "datasource": {
      "type": "prometheus",
      "uid": "${datasource}"
     }
    }"#;
