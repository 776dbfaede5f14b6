//! A client connects only to servers of the list that it was given last.

use crate::history::{Event, What};

/// Returns how the promise was broken.
pub fn judge(events: &[Event]) -> Vec<String> {
    let broken = |event: &Event| match &event.what {
        What::Strayed { client, member } => Some(format!(
            "at {:?}: client {client} connects to member {member}, which has left its list",
            event.at
        )),
        What::Outdated { client, found, expected } => Some(format!(
            "at {:?}: client {client} uses version {found:?} of the ensemble, not {expected}",
            event.at
        )),
        _ => None,
    };
    events.iter().filter_map(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::history;

    #[test]
    fn a_client_that_has_missed_a_change_of_the_ensemble_is_seen() {
        let outdated = What::Outdated { client: 1, found: Some(3), expected: 4 };
        assert_eq!(judge(&history(vec![outdated])).len(), 1);
    }

    #[test]
    fn a_connection_to_a_server_that_has_left_is_seen() {
        assert_eq!(judge(&history(vec![What::Strayed { client: 1, member: 2 }])).len(), 1);
        assert_eq!(judge(&history(vec![What::Hosts { client: 1, members: vec![2] }])).len(), 0);
    }
}
