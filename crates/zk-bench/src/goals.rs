use crate::{Outcome, options::Options, report::Report};
pub(crate) fn run(_: &Options) -> Outcome<Report> {
    Err("".into())
}
