//! Every order in which five contenders for permits can join and leave, and in which four contenders for
//! a read/write lock can join, downgrade and leave. The suites `semaphore` and `rw_lock` run the orders of
//! fewer contenders.

use zk_tests::access::Access::{self, Read, Write};
use zk_tests::orders::{rw_lock, semaphore};

#[test]
fn in_every_order_of_five_contenders_the_first_in_the_queue_hold_the_permits() {
    assert_eq!(semaphore::check_every_order(5, 5), 945, "1 * 3 * 5 * 7 * 9");
}

/// Contenders of one session count like those of several.
#[test]
fn the_same_is_true_of_five_contenders_of_one_session() {
    assert_eq!(semaphore::check_every_order(5, 1), 945);
}

/// Writers downgrade at every possible moment. Four tests share the choices of readers and writers,
/// because one would run on one processor for longer than all other tests of the suite.
fn check_downgrades(first: [Access; 2]) {
    let choices = rw_lock::all_sides(4).filter(|sides| sides.starts_with(&first));
    let orders = rw_lock::check_every_order(choices, true, false);
    eprintln!("{orders} orders with downgrades");
    assert!(orders >= 4 * 105, "{orders}");
}

#[test]
fn the_same_is_true_when_writers_behind_two_readers_give_way() {
    check_downgrades([Read, Read]);
}

#[test]
fn the_same_is_true_when_a_writer_behind_a_reader_gives_way() {
    check_downgrades([Read, Write]);
}

#[test]
fn the_same_is_true_when_a_writer_before_a_reader_gives_way() {
    check_downgrades([Write, Read]);
}

#[test]
fn the_same_is_true_when_two_writers_give_way() {
    check_downgrades([Write, Write]);
}
