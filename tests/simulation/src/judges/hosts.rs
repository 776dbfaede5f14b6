//! A client connects only to servers of the list that it was given last.

use crate::history::{Event, What};

/// Returns how the promise was broken.
pub fn judge(events: &[Event]) -> Vec<String> {
    let broken = |event: &Event| match &event.what {
        What::Strayed { client, member } => Some(format!(
            "at {:?}: client {client} connects to member {member}, which has left its list",
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
    fn a_connection_to_a_server_that_has_left_is_seen() {
        assert_eq!(judge(&history(vec![What::Strayed { client: 1, member: 2 }])).len(), 1);
        assert_eq!(judge(&history(vec![What::Hosts { client: 1, members: vec![2] }])).len(), 0);
    }
}
