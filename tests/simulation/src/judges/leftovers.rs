//! A client that was closed leaves no ephemeral znode: no contender, no lease, no member.

use crate::history::{Event, What};

/// Returns how the promise was broken.
pub fn judge(events: &[Event]) -> Vec<String> {
    let left = |event: &Event| match &event.what {
        What::Left { path } => Some(format!("{path} is left")),
        _ => None,
    };
    events.iter().filter_map(left).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::history;

    #[test]
    fn a_znode_that_is_left_is_seen() {
        assert_eq!(judge(&history(vec![What::Closing])).len(), 0);
        assert_eq!(judge(&history(vec![What::Left { path: "/a".to_owned() }])).len(), 1);
    }
}
