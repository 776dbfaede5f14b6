//! Reading several znodes until each read has a definite result.

use jute_codec::{ErrorCode, Response};
use zk_session::OpError;
use zk_session::recipe::Operation;

use super::answer::{Answers, Needs};
use super::failure::Failure;
use super::operation::flight;
use super::step::{Input, Machine, SessionView, Step};
use crate::action::FailedAction;

/// Maximum number of reads in one flight.
const BATCH: usize = 100;

/// Issues reads, barriers, or deletes of znodes with unique names, in any session and across lost
/// connections, until each has a definite result.
#[derive(Debug)]
pub(crate) struct ReadAll {
    operations: Vec<Operation>,
    /// The action that a failure names.
    action: FailedAction,
    path: bytestring::ByteString,
    /// Results so far, in the order of the operations.
    results: Vec<Option<Response>>,
}

impl ReadAll {
    pub(crate) fn new(
        operations: Vec<Operation>,
        action: FailedAction,
        path: &bytestring::ByteString,
    ) -> Self {
        let results = Vec::with_capacity(operations.len());
        Self { operations, action, path: path.clone(), results }
    }

    fn next(&mut self) -> Step<<Self as Machine>::Output> {
        let left = self.operations.iter().skip(self.results.len());
        let batch: Vec<_> = left.take(BATCH).cloned().collect();
        if batch.is_empty() {
            return Step::Done(Ok(std::mem::take(&mut self.results)));
        }
        Step::Submit(flight(None, batch), Needs::Each)
    }

    fn read(&mut self, answers: Answers) -> Step<<Self as Machine>::Output> {
        for answer in answers.results {
            match answer.response() {
                Ok(response) => self.results.push(Some(response)),
                Err(OpError::Server { code: ErrorCode::NO_NODE, .. }) => self.results.push(None),
                Err(error) => return self.failed(error),
            }
        }
        self.next()
    }

    fn failed(&self, error: OpError) -> Step<<Self as Machine>::Output> {
        Step::Done(Err(Failure::new(self.action, self.path.clone(), error)))
    }
}

impl Machine for ReadAll {
    /// The responses in the order of the operations, with `None` for each znode that does not
    /// exist.
    type Output = Result<Vec<Option<Response>>, Failure>;

    fn start(&mut self, _: SessionView) -> Step<Self::Output> {
        self.next()
    }

    fn handle(&mut self, _: SessionView, input: Input) -> Step<Self::Output> {
        let Input::Answered(answers) = input else { return Step::Wait(None) };
        self.read(answers)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use jute_codec::{DataReply, Stat};
    use zk_session::recipe::Reply;
    use zk_session::{Outcome, SessionId, Time};

    use super::*;
    use crate::machine::Repeating;
    use crate::machine::operation::{barrier, read};

    fn view(has_expired: bool) -> SessionView {
        let now = Time::default();
        SessionView {
            now,
            connection: Some(1),
            alive: Some(1),
            is_running_out: false,
            lapses: 0,
            has_expired,
            has_left_session: false,
            seed: 0,
        }
    }

    fn reading(count: usize) -> Repeating<ReadAll> {
        let operations = (0..count).map(|n| read(format!("/a/{n}").into(), None)).collect();
        Repeating::new(ReadAll::new(operations, FailedAction::ReadChild, &"/a".into()))
    }

    fn found(data: &str) -> Result<Response, OpError> {
        let data = Some(Bytes::copy_from_slice(data.as_bytes()));
        Ok(Response::GetData(DataReply { data, stat: Stat::default() }))
    }

    fn reply(results: Vec<Result<Response, OpError>>) -> Input {
        Input::Reply(Reply { session: Some(SessionId(1)), connection: 1, results, refused: None })
    }

    #[track_caller]
    fn flight_length<T: std::fmt::Debug>(step: &Step<T>) -> usize {
        let Step::Submit(flight, _) = step else { panic!("no flight: {step:?}") };
        flight.operations.len()
    }

    #[test]
    fn reads_continue_where_a_lost_connection_has_interrupted_them() {
        let mut machine = reading(250);
        assert_eq!(flight_length(&machine.start(view(false))), BATCH);
        let lost = || Err(OpError::connection_loss(Outcome::Unknown));
        let mut results: Vec<_> = (0..40).map(|_| found("x")).collect();
        results.resize_with(BATCH, lost);
        let step = machine.handle(view(false), reply(results));
        assert_eq!(flight_length(&step), BATCH - 40, "the next flight begins with the 41st");
        let left = (40..BATCH).map(|_| found("y")).collect();
        let step = machine.handle(view(false), reply(left));
        assert_eq!(flight_length(&step), BATCH);
        let step = machine.handle(view(false), reply((0..BATCH).map(|_| found("z")).collect()));
        assert_eq!(flight_length(&step), 50);
        let missing = || Err(OpError::server(ErrorCode::NO_NODE));
        let step = machine.handle(view(false), reply((0..50).map(|_| missing()).collect()));
        let Step::Done(Ok(read)) = step else { panic!("{step:?}") };
        assert_eq!(read.len(), 250);
        assert_eq!(read.iter().filter(|result| result.is_none()).count(), 50);
    }

    #[test]
    fn an_overloaded_server_is_asked_after_a_pause_and_a_failing_one_not_without_end() {
        let mut machine = reading(1);
        let _ = machine.start(view(false));
        let throttled = || reply(vec![Err(OpError::server(ErrorCode::THROTTLED_OP))]);
        for _ in 0..100 {
            let step = machine.handle(view(false), throttled());
            assert!(matches!(step, Step::Wait(Some(_))), "{step:?}");
            assert_eq!(flight_length(&machine.handle(view(false), Input::Suspended)), 1);
        }
        let failing = || reply(vec![Err(OpError::server(ErrorCode::SYSTEM_ERROR))]);
        let mut step = machine.handle(view(false), failing());
        for _ in 0..100 {
            if let Step::Wait(_) = step {
                let _ = machine.handle(view(false), Input::Suspended);
                step = machine.handle(view(false), failing());
            }
        }
        assert!(matches!(&step, Step::Done(Err(failure)) if failure.path == "/a"), "{step:?}");
    }

    #[test]
    fn a_read_whose_barrier_was_refused_is_issued_again_with_its_barrier() {
        let operations = vec![barrier("/a".into()), read("/a".into(), None)];
        let mut machine =
            Repeating::new(ReadAll::new(operations, FailedAction::Read, &"/a".into()));
        assert_eq!(flight_length(&machine.start(view(false))), 2);
        let throttled = Err(OpError::server(ErrorCode::THROTTLED_OP));
        let step = machine.handle(view(false), reply(vec![throttled, found("stale")]));
        assert!(matches!(step, Step::Wait(Some(_))), "{step:?}");
        assert_eq!(flight_length(&machine.handle(view(false), Input::Suspended)), 2);
        let step =
            machine.handle(view(false), reply(vec![Ok(Response::Multi(vec![])), found("new")]));
        let Step::Done(Ok(read)) = step else { panic!("{step:?}") };
        let [_, Some(Response::GetData(read))] = &read[..] else { panic!("{read:?}") };
        assert_eq!(read.data.as_deref(), Some(b"new".as_slice()));
    }

    #[test]
    fn the_end_of_the_last_session_is_a_failure_and_that_of_another_is_not() {
        let expired = || reply(vec![Err(OpError::session_expired(Outcome::NotApplied))]);
        let mut machine = reading(1);
        let _ = machine.start(view(false));
        assert_eq!(flight_length(&machine.handle(view(false), expired())), 1);
        let step = machine.handle(view(true), expired());
        assert!(matches!(step, Step::Done(Err(_))), "{step:?}");
    }
}
