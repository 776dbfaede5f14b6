//! Every order in which four contenders can join and leave, with one to three permits.
//! `tests/exhaustive/tests/orders.rs` does the same with five.

use zk_tests::orders::semaphore::check_every_order;

#[test]
fn in_every_order_of_four_contenders_the_first_in_the_queue_hold_the_permits() {
    assert_eq!(check_every_order(4, 4), 105, "1 * 3 * 5 * 7");
}

/// Contenders of one session count like those of several.
#[test]
fn the_same_is_true_of_four_contenders_of_one_session() {
    assert_eq!(check_every_order(4, 1), 105);
}
