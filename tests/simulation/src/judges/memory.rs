//! Memory does not grow while nothing happens.

use crate::program::Program;

/// How many allocations may be live after a minute in which no task runs, and were not before, for
/// each client and for the servers. Requests of idle clients have paths in the journal, and timers and
/// buffers may be there at one moment and not at the other. The most of one client in 8,000 seeds is
/// 11, of four 12. What is kept at each ping is more if the session timeout is short.
const IDLE_MAX: i64 = 10;

/// Returns how the promise was broken. `grown` is the number of allocations that were made in the
/// quiet time and are still live, without those that were freed.
///
/// Bytes would say less: a journal of the servers that doubles its buffer takes many of them.
pub fn judge(grown: i64, program: &Program) -> Vec<String> {
    let clients = (0..program.clients.len()).filter(|client| program.uses(*client)).count();
    let most = IDLE_MAX * (i64::try_from(clients).unwrap_or(0) + 1);
    let violation = || format!("{grown} allocations more after the quiet minute than before it");
    (grown > most).then(violation).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;

    #[test]
    fn growth_is_seen() {
        let mut program = Program::draw(&mut Draw::new(1));
        program.clients.truncate(1);
        assert_eq!(judge(-3, &program).len(), 0);
        assert_eq!(judge(20, &program).len(), 0);
        assert_eq!(judge(21, &program).len(), 1);
    }

    #[test]
    fn what_is_kept_is_counted_and_what_is_freed_is_not() {
        let mut kept = Vec::with_capacity(20);
        let memory = allocation_counter::measure(|| {
            kept.extend((0..11).map(Box::new));
            drop(Box::new(12));
        });
        assert_eq!((memory.count_current, kept.len()), (11, 11));
    }
}
