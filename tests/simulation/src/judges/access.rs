//! Nobody without credentials deletes or changes what belongs to clients that have some, and nobody
//! with credentials is refused.

use jute_codec::ErrorCode;

use crate::history::{End, Event, Failure, What};
use crate::world::plan::{FaultKind, Plan};

/// Returns how the promise was broken.
pub fn judge(events: &[Event], plan: &Plan) -> Vec<String> {
    // In such a world, servers refuse those who have credentials, too.
    let may_refuse = plan.may_forbid() || plan.faults.contains(&FaultKind::Refusal);
    let is_blind = |event: &Event| event.who.is_some_and(|who| plan.is_blind(who.client));
    let broken = |event: &Event| match &event.what {
        What::Intruded { path } => {
            Some(format!("{path} was taken from its owner at {:?}", event.at))
        }
        What::Ended { end: End::Failed(Failure::Refused(code)), .. }
            if ErrorCode(*code) == ErrorCode::NO_AUTH && !may_refuse && !is_blind(event) =>
        {
            Some(format!("somebody who has credentials was refused: {event}"))
        }
        _ => None,
    };
    events.iter().filter_map(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;
    use crate::judges::tests::history;

    #[test]
    fn intruders_and_owners_who_are_refused_are_seen() {
        let mut plan = Plan::draw(&mut Draw::new(1));
        plan.faults.clear();
        let count = |what: What, plan: &Plan| judge(&history(vec![what]), plan).len();
        assert_eq!(count(What::Intruded { path: "/locks/a".to_owned() }, &plan), 1);
        let failed =
            |code: ErrorCode| What::Ended { call: 1, end: End::Failed(Failure::Refused(code.0)) };
        assert_eq!(count(failed(ErrorCode::NO_AUTH), &plan), 1);
        assert_eq!(count(failed(ErrorCode::NO_NODE), &plan), 0);
        plan.faults.push(FaultKind::Refusal);
        assert_eq!(count(failed(ErrorCode::NO_AUTH), &plan), 0);
    }
}
