//! Every order in which four contenders can join and leave, as readers and writers, and in which three
//! can downgrade too. `tests/exhaustive/tests/orders.rs` lets four downgrade.

use zk_tests::orders::rw_lock::{all_sides, check_every_order};

#[test]
fn in_every_order_of_four_contenders_exactly_those_hold_who_may() {
    // Contenders join in one order, and each of them leaves after it has joined, so the number of
    // orders is 1 * 3 * 5 * 7.
    assert_eq!(check_every_order(all_sides(4), false, false), 16 * 105);
}

/// Contenders of one session exclude each other like contenders of several sessions.
#[test]
fn the_same_is_true_of_four_contenders_of_one_session() {
    assert_eq!(check_every_order(all_sides(4), false, true), 16 * 105);
}

/// Writers downgrade at every possible moment.
#[test]
fn the_same_is_true_of_three_contenders_when_writers_give_way() {
    let orders = check_every_order(all_sides(3), true, false);
    eprintln!("{orders} orders with downgrades");
    assert!(orders >= 8 * 15, "{orders}");
}
