//! Pictures of what happened when, as SVG: a lane with coloured spans for each party, over an axis
//! of seconds. They are readable on light and on dark pages, and on a phone.

use std::fmt::Write as _;
use std::time::Duration;

/// Width of a picture. A phone shows it at three quarters of its size.
const WIDTH: u32 = 460;
/// Space at the left and at the right.
const SIDE: u32 = 14;
/// Space between the edges of a lane and its neighbours.
const LANE: u32 = 54;
/// Height of a span.
const SPAN: u32 = 26;
/// Height of a line of text below the lanes.
const LINE: u32 = 18;
/// Size of the letters.
const LETTER: u32 = 12;

/// What a span means, which decides about its colour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "each kind has a style")]
pub enum Kind {
    /// Something works.
    Good,
    /// Something may soon not work.
    Doubtful,
    /// Something does not work.
    Bad,
    /// Nothing happens.
    Idle,
}

/// What a party did, or what was true of it, from a moment on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Change {
    /// The time since the beginning of the picture.
    pub at: Duration,
    /// What it means.
    pub kind: Kind,
    /// What the span says; nothing is drawn if there is nothing to say.
    pub text: String,
}

/// A party and its changes, in their order.
#[derive(Clone, Debug)]
pub struct Lane {
    /// The name of the party.
    pub name: String,
    /// Each one lasts until the next one, and the last one until the end.
    pub changes: Vec<Change>,
}

/// Draws the lanes up to this time. `title` is for readers who do not see the picture, and the lines
/// below the axis are for everyone.
///
/// # Panics
///
/// If a span is too short for its text.
pub fn draw(title: &str, lanes: &[Lane], until: Duration, below: &[String]) -> String {
    let x = |at: Duration| {
        let share = at.as_secs_f64() / until.as_secs_f64();
        f64::from(SIDE) + share * f64::from(WIDTH - 2 * SIDE)
    };
    let rows = u32::try_from(lanes.len()).expect("there are few lanes");
    let axis = 10 + rows * LANE;
    let lines = u32::try_from(below.len()).expect("there are few lines");
    let height = axis + LINE + lines * LINE + 12;
    let mut svg = head(title, height);
    let seconds = until.as_secs();
    for second in (0..=seconds).step_by(5) {
        let at = x(Duration::from_secs(second));
        let _ = writeln!(svg, r#"<path class="grid" d="M{at:.1} 14V{axis}"/>"#);
        let anchor = match second {
            0 => "start",
            last if last + 2 > seconds => "end",
            _ => "middle",
        };
        let below_axis = axis + LINE - 2;
        let _ = writeln!(
            svg,
            r#"<text class="quiet" x="{at:.1}" y="{below_axis}" text-anchor="{anchor}">{second} s</text>"#
        );
    }
    for (row, lane) in (0..).zip(lanes) {
        let top = 10 + row * LANE;
        let name = top + 15;
        let _ = writeln!(
            svg,
            r#"<text class="name" x="{SIDE}" y="{name}">{}</text>"#,
            escaped(&lane.name)
        );
        let ends = lane.changes.iter().skip(1).map(|change| change.at).chain([until]);
        for (change, end) in lane.changes.iter().zip(ends) {
            span(&mut svg, change, x(change.at), x(end), top + 20);
        }
    }
    for (line, text) in (2..).zip(below) {
        let y = axis + line * LINE;
        let _ = writeln!(svg, r#"<text class="quiet" x="{SIDE}" y="{y}">{}</text>"#, escaped(text));
    }
    svg.push_str("</svg>\n");
    svg
}

fn span(svg: &mut String, change: &Change, from: f64, to: f64, top: u32) {
    if change.text.is_empty() {
        return;
    }
    // Letters of the usual fonts are a little wider than half of their height.
    let letters = f64::from(u32::try_from(change.text.chars().count()).expect("it is short"));
    let text_width = letters * f64::from(LETTER) * 0.56;
    // The space between two spans keeps them apart for those who do not tell the colours apart.
    let width = to - from - 1.0;
    assert!(text_width + 4.0 <= width, "no space for {:?}: {text_width} of {width}", change.text);
    let class = match change.kind {
        Kind::Good => "good",
        Kind::Doubtful => "doubtful",
        Kind::Bad => "bad",
        Kind::Idle => "idle",
    };
    let _ = writeln!(
        svg,
        r#"<rect class="{class}" x="{from:.1}" y="{top}" width="{width:.1}" height="{SPAN}" rx="3"/>"#
    );
    let (middle, line) = (from + width / 2.0, top + 17);
    let _ = writeln!(
        svg,
        r#"<text class="on-{class}" x="{middle:.1}" y="{line}" text-anchor="middle">{}</text>"#,
        escaped(&change.text)
    );
}

/// The picture has a background of its own, since a page may be light while the system is dark.
fn head(title: &str, height: u32) -> String {
    let (shown_width, shown_height) = (WIDTH * 3 / 2, height * 3 / 2);
    let (inner_width, inner_height) = (WIDTH - 1, height - 1);
    let title = escaped(title);
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{shown_width}" height="{shown_height}" viewBox="0 0 {WIDTH} {height}" role="img">
<title>{title}</title>
<style>
text {{ font: {LETTER}px system-ui, sans-serif; fill: #1f2328 }}
.paper {{ fill: #fff; stroke: #d1d9e0 }}
.grid {{ stroke: #d1d9e0 }}
.name {{ paint-order: stroke; stroke: #fff; stroke-width: 4px }}
.quiet {{ fill: #59636e }}
.good {{ fill: #1a7f37 }} .on-good {{ fill: #fff }}
.doubtful {{ fill: #eac54f }} .on-doubtful {{ fill: #1f2328 }}
.bad {{ fill: #cf222e }} .on-bad {{ fill: #fff }}
.idle {{ fill: #dfe4ea }} .on-idle {{ fill: #1f2328 }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #f0f6fc }}
.paper {{ fill: #0d1117; stroke: #3d444d }}
.grid {{ stroke: #3d444d }}
.name {{ stroke: #0d1117 }}
.quiet {{ fill: #9198a1 }}
.good {{ fill: #238636 }} .on-good {{ fill: #fff }}
.doubtful {{ fill: #d29922 }} .on-doubtful {{ fill: #0d1117 }}
.bad {{ fill: #da3633 }} .on-bad {{ fill: #fff }}
.idle {{ fill: #3d444d }} .on-idle {{ fill: #f0f6fc }}
}}
</style>
<rect class="paper" x=".5" y=".5" width="{inner_width}" height="{inner_height}" rx="6"/>
"##
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
