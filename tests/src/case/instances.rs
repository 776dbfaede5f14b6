//! The macros that instantiate suites from the list of cases.

/// Makes a module for each line of the list, with tests that call generic functions of the
/// surrounding module.
///
/// ```text
/// for_each_lock! {
///     #[test] locks: [a_view_keeps_nothing_alive]
///     #[tokio::test] pairs: [dropping_a_guard_releases]
/// }
/// ```
///
/// | set | function | instances |
/// |---|---|---|
/// | `locks` | `fn test<C: Case>()` | each case |
/// | `pairs` | `fn test<H: Case, W: Case>()` | each pair: `W` waits while `H` holds |
/// | `queues` | `fn test<C: Case<Kind: Queued>>()` | each case of the form `fifo` or `queue` |
/// | `queue_pairs` | `fn test<H: Case<Kind: Queued>, W: Case<Kind: Queued>>()` | each such pair |
/// | `fifos` | as `queues` | each case of the form `fifo` |
/// | `fifo_pairs` | as `queue_pairs` | each such pair |
#[macro_export]
macro_rules! for_each_lock {
    ($($request:tt)+) => { $crate::recipes! { __modules { $($request)+ } } };
}

/// Evaluates an expression for the case with this name, as a type. The result is `None` if no case
/// has the name.
#[macro_export]
macro_rules! with_case {
    ($name:expr, $case:ident => $body:expr) => {
        $crate::recipes! { __match { $name, $case => $body } }
    };
}

/// Evaluates an expression for each pair of a holder and a waiter, as types. Returns the array of
/// the results.
#[macro_export]
macro_rules! each_pair {
    ($holder:ident, $waiter:ident => $body:expr) => {
        $crate::recipes! { __each { $holder, $waiter => $body } }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __modules {
    ($request:tt $($name:ident: $waiter:ident $(behind $holder:ident)?, $form:ident;)+) => {
        $(mod $name {
            $crate::__sets! { [$waiter $(behind $holder)?, $form] $request }
        })+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __sets {
    ($line:tt { $(#$attribute:tt $set:ident: $tests:tt)+ }) => {
        $($crate::__set! { $set $line $attribute $tests })+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __set {
    (locks [$case:ident, $form:ident] $attribute:tt $tests:tt) => {
        $crate::__tests! { $attribute [$crate::case::$case] $tests }
    };
    (pairs [$waiter:ident, $form:ident] $attribute:tt $tests:tt) => {
        $crate::__tests! { $attribute [
            <$crate::case::$waiter as $crate::case::Case>::Rival,
            $crate::case::$waiter
        ] $tests }
    };
    (pairs [$waiter:ident behind $holder:ident, $form:ident] $attribute:tt $tests:tt) => {
        $crate::__tests! { $attribute [$crate::case::$holder, $crate::case::$waiter] $tests }
    };
    (queues [$case:ident $(behind $holder:ident)?, znode] $attribute:tt $tests:tt) => {};
    (queues $line:tt $attribute:tt $tests:tt) => {
        $crate::__set! { locks $line $attribute $tests }
    };
    (queue_pairs [$case:ident $(behind $holder:ident)?, znode] $attribute:tt $tests:tt) => {};
    (queue_pairs $line:tt $attribute:tt $tests:tt) => {
        $crate::__set! { pairs $line $attribute $tests }
    };
    (fifos [$case:ident $(behind $holder:ident)?, fifo] $attribute:tt $tests:tt) => {
        $crate::__set! { locks [$case $(behind $holder)?, fifo] $attribute $tests }
    };
    (fifo_pairs [$case:ident $(behind $holder:ident)?, fifo] $attribute:tt $tests:tt) => {
        $crate::__set! { pairs [$case $(behind $holder)?, fifo] $attribute $tests }
    };
    // These arms skip the lines that are not in the set: a line with `behind` adds a pair but no
    // case, and some sets exclude some forms.
    (locks $line:tt $attribute:tt $tests:tt) => {};
    (fifos $line:tt $attribute:tt $tests:tt) => {};
    (fifo_pairs $line:tt $attribute:tt $tests:tt) => {};
    ($set:ident $line:tt $attribute:tt $tests:tt) => {
        compile_error!(concat!("there is no set `", stringify!($set), "`"));
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ($attribute:tt $cases:tt [$($test:ident),+ $(,)?]) => {
        $($crate::__test! { $attribute $cases $test })+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __test {
    ([test] [$($case:tt)+] $test:ident) => {
        #[test]
        fn $test() {
            super::$test::<$($case)+>();
        }
    };
    ([tokio::test $($flavor:tt)?] [$($case:tt)+] $test:ident) => {
        #[tokio::test $($flavor)?]
        async fn $test() {
            super::$test::<$($case)+>().await;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __match {
    (
        { $wanted:expr, $alias:ident => $body:expr }
        $($name:ident: $waiter:ident $(behind $holder:ident)?, $form:ident;)+
    ) => {
        match $wanted {
            $(stringify!($name) => {
                type $alias = $crate::case::$waiter;
                Some($body)
            })+
            _ => None,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __each {
    ($request:tt $($name:ident: $waiter:ident $(behind $holder:ident)?, $form:ident;)+) => {
        [$($crate::__pair! { $request $waiter $(behind $holder)? }),+]
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __pair {
    ({ $h:ident, $w:ident => $body:expr } $waiter:ident) => {{
        type $h = <$crate::case::$waiter as $crate::case::Case>::Rival;
        type $w = $crate::case::$waiter;
        $body
    }};
    ({ $h:ident, $w:ident => $body:expr } $waiter:ident behind $holder:ident) => {{
        type $h = $crate::case::$holder;
        type $w = $crate::case::$waiter;
        $body
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __constants {
    ($request:tt $($name:ident: $waiter:ident $(behind $holder:ident)?, $form:ident;)+) => {
        [$((
            <$crate::case::$waiter as $crate::case::Case>::NAME,
            <$crate::case::$waiter as $crate::case::Case>::MARK,
        )),+]
    };
}

/// Returns the names of all cases without duplicates.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = crate::recipes! { __constants {} }.map(|(name, _)| name).into();
    names.dedup();
    names
}

/// Returns the marks in the names of contender znodes, without duplicates.
pub fn marks() -> Vec<&'static str> {
    let constants = crate::recipes! { __constants {} };
    let mut marks: Vec<_> = constants.into_iter().filter_map(|(_, mark)| mark).collect();
    marks.dedup();
    marks
}
