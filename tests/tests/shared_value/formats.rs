//! The formats of a counter, and data of other formats.

use zk_recipes::{Counter, CounterFormat, ValueError};
use zk_tests::scene::FIRST;
use zk_tests::world::{World, run};

use crate::{PATH, check_clean, create, stored};

#[test]
fn each_format_is_stored_as_the_other_implementations_store_it() {
    run(async {
        let formats: [(CounterFormat, &[u8]); 3] = [
            (CounterFormat::Decimal, b"-2"),
            (CounterFormat::BigEndian32, &[0xff, 0xff, 0xff, 0xfe]),
            (CounterFormat::BigEndian64, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]),
        ];
        for (format, data) in formats {
            let world = World::new();
            let client = world.client(FIRST).await;
            let builder = Counter::builder(&client, PATH).expect("the path is valid");
            let counter = builder.format(format).initial(5).build().expect("it fits");
            assert_eq!(counter.get().await, Ok(5));
            assert_eq!(counter.add(-7).await, Ok(-2));
            assert_eq!(world.server.data(PATH).as_deref(), Some(data));
            // Curator and kazoo create such a znode before they write a number.
            world.server.admin_set_data(PATH, b"");
            assert_eq!(counter.add(1).await, Ok(6), "no data is the initial number");
            check_clean(&world, &[&client]).await;
        }
    });
}

#[test]
fn data_of_another_format_is_shown_and_left_alone() {
    run(async {
        for (format, data) in [
            (CounterFormat::Decimal, "1.5"),
            (CounterFormat::BigEndian32, "12345678"),
            (CounterFormat::BigEndian64, "1234"),
        ] {
            let world = World::new();
            let client = world.client(FIRST).await;
            create(&world, data);
            let builder = Counter::builder(&client, PATH).expect("the path is valid");
            let counter = builder.format(format).build().expect("it fits");
            for error in [
                counter.get().await.expect_err("malformed"),
                counter.add(1).await.expect_err("malformed"),
                counter.compare_and_set(1, 2).await.expect_err("malformed"),
            ] {
                let ValueError::Malformed { path, data: shown, .. } = &error else {
                    panic!("{error}")
                };
                assert_eq!((path.as_str(), shown.as_str()), (PATH, data));
            }
            assert_eq!(stored(&world).as_deref(), Some(data));
            check_clean(&world, &[&client]).await;
        }
    });
}

#[test]
fn a_sum_that_does_not_fit_is_refused() {
    run(async {
        for (format, max) in
            [(CounterFormat::Decimal, i64::MAX), (CounterFormat::BigEndian32, i32::MAX.into())]
        {
            let world = World::new();
            let client = world.client(FIRST).await;
            let builder = Counter::builder(&client, PATH).expect("the path is valid");
            let counter = builder.format(format).initial(max).build().expect("it fits");
            let overflow = ValueError::Overflow { value: max, delta: 1 };
            assert_eq!(counter.add(1).await, Err(overflow));
            assert_eq!(counter.get().await, Ok(max));
            check_clean(&world, &[&client]).await;
        }
        let world = World::new();
        let client = world.client(FIRST).await;
        let builder = Counter::builder(&client, PATH).expect("the path is valid");
        let initial = i64::from(i32::MAX) + 1;
        let refused = builder.format(CounterFormat::BigEndian32).initial(initial).build();
        assert!(refused.expect_err("it does not fit").to_string().contains("initial number"));
    });
}
