//! The numbers of a client or of a lock: how they are declared, and how they become metrics.

#[cfg(feature = "metrics")]
use metrics::{Counter, Gauge, Histogram, Label, Unit};

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: MetricKind,
    /// Its meaning, and its unit unless it counts something.
    pub description: &'static str,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetricKind {
    /// A number that only grows, in bytes.
    Bytes,
    /// A number that only grows.
    Counter,
    /// A number that grows and shrinks.
    Gauge,
    /// A distribution of times in seconds.
    Seconds,
}

/// A number of a snapshot, with its declaration.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its field.
    pub field: &'static str,
    /// What it is exported as, if it is.
    pub metric: Option<Metric>,
    /// Its value; times are in seconds.
    pub value: f64,
}

/// Declares the numbers of something that counts. Each number is declared once, with its field in the
/// public snapshot and with its metric; a number without a metric is not exported.
///
/// Everything else follows from the declaration: the suite `tests/tests/metrics` compares each number
/// with its metric, fails if its scenes never change one, and writes the list in `docs/metrics.md` and
/// a panel of the dashboard.
///
/// - `counts` only grow: the snapshot has a `u64`, and the metric is a `Counter`, or counts `Bytes`.
/// - `times` are measured: the snapshot has their sum, and the metric is their distribution.
/// - `levels` grow and shrink: the snapshot has a `usize`, and the metric is a gauge.
/// - `gauges` are the same, but the snapshot does not have them.
/// - `others` are fields of the snapshot that are not metrics, or become metrics in another way.
///
/// Of the first four, there is a struct with a field for each number, which can be of any type:
/// `Counts<u64>` are counts, and `Counts<Counter>` are what exports them. Its `METRICS` are the
/// declared metrics.
#[doc(hidden)]
#[macro_export]
macro_rules! figures {
    (
        $(#[$attribute:meta])*
        pub struct $stats:ident
        counts { $(
            $(#[$count_doc:meta])*
            $count:ident $(= $count_kind:ident $count_name:literal $count_text:literal)?;
        )* }
        times { $(
            $(#[$time_doc:meta])*
            $time:ident $(= $time_name:literal $time_text:literal)?;
        )* }
        levels { $(
            $(#[$level_doc:meta])*
            $level:ident $(= $level_name:literal $level_text:literal)?;
        )* }
        gauges { $($gauge:ident = $gauge_name:literal $gauge_text:literal;)* }
        others { $($(#[$other_doc:meta])* $other:ident: $other_type:ty;)* }
    ) => {
        $(#[$attribute])*
        pub struct $stats {
            $($(#[$count_doc])* pub $count: u64,)*
            $($(#[$time_doc])* pub $time: ::std::time::Duration,)*
            $($(#[$level_doc])* pub $level: usize,)*
            $($(#[$other_doc])* pub $other: $other_type,)*
        }

        impl $stats {
            /// Creates a snapshot, in which the others have their defaults.
            pub(crate) fn of(
                counts: &Counts<u64>,
                times: &Times<::std::time::Duration>,
                levels: &Levels<usize>,
            ) -> Self {
                Self {
                    $($count: counts.$count,)*
                    $($time: times.$time,)*
                    $($level: levels.$level,)*
                    $($other: ::std::default::Default::default(),)*
                }
            }

            /// Returns the numbers with their declarations, for tests.
            #[doc(hidden)]
            #[expect(clippy::cast_precision_loss, reason = "no test counts to 2^52")]
            pub fn figures(&self) -> ::std::vec::Vec<$crate::metrics::Figure> {
                ::std::vec![
                    $($crate::metrics::Figure {
                        field: ::std::stringify!($count),
                        metric: Counts::METRICS.$count,
                        value: self.$count as f64,
                    },)*
                    $($crate::metrics::Figure {
                        field: ::std::stringify!($time),
                        metric: Times::METRICS.$time,
                        value: self.$time.as_secs_f64(),
                    },)*
                    $($crate::metrics::Figure {
                        field: ::std::stringify!($level),
                        metric: Levels::METRICS.$level,
                        value: self.$level as f64,
                    },)*
                ]
            }
        }

        $crate::figures! {
            @group Counts { $($count [$($count_kind $count_name $count_text)?])* }
        }
        $crate::figures! { @group Times { $($time [$(Seconds $time_name $time_text)?])* } }
        $crate::figures! { @group Levels { $($level [$(Gauge $level_name $level_text)?])* } }
        $crate::figures! { @group Gauges { $($gauge [Gauge $gauge_name $gauge_text])* } }
    };
    (@group $group:ident {
        $($field:ident [$($kind:ident $name:literal $text:literal)?])*
    }) => {
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub(crate) struct $group<T> {
            $(pub(crate) $field: T,)*
        }

        #[allow(dead_code, reason = "the features decide what is used")]
        impl $group<Option<$crate::metrics::Metric>> {
            /// The metrics that the numbers are exported as.
            pub(crate) const METRICS: Self =
                Self { $($field: $crate::figures!(@metric $($kind $name $text)?),)* };
        }

        #[allow(dead_code, reason = "the features decide what is used")]
        impl<T> $group<T> {
            pub(crate) fn map<U>(&self, mut convert: impl FnMut(&T) -> U) -> $group<U> {
                $group { $($field: convert(&self.$field),)* }
            }

            pub(crate) fn pairs<'a, U>(
                &'a mut self,
                other: &'a $group<U>,
            ) -> impl Iterator<Item = (&'a mut T, &'a U)> {
                [$((&mut self.$field, &other.$field)),*].into_iter()
            }
        }
    };
    (@metric) => {
        None
    };
    (@metric $kind:ident $name:literal $text:literal) => {
        Some($crate::metrics::Metric {
            name: $name,
            kind: $crate::metrics::MetricKind::$kind,
            description: $text,
        })
    };
}

/// Describes a metric to the recorder that is installed now.
#[cfg(feature = "metrics")]
pub fn describe(metric: Metric) {
    let Metric { name, kind, description } = metric;
    match kind {
        MetricKind::Bytes => metrics::describe_counter!(name, Unit::Bytes, description),
        MetricKind::Counter => metrics::describe_counter!(name, Unit::Count, description),
        MetricKind::Gauge => metrics::describe_gauge!(name, Unit::Count, description),
        MetricKind::Seconds => metrics::describe_histogram!(name, Unit::Seconds, description),
    }
}

/// Describes and registers a counter. It does nothing if there is no metric.
#[cfg(feature = "metrics")]
pub fn counter(metric: Option<Metric>, labels: &[Label]) -> Counter {
    metric.inspect(|metric| describe(*metric)).map_or_else(Counter::noop, |metric| {
        let labels = labels.to_vec();
        metrics::counter!(metric.name, labels)
    })
}

/// Describes and registers a gauge. It does nothing if there is no metric.
#[cfg(feature = "metrics")]
pub fn gauge(metric: Option<Metric>, labels: &[Label]) -> Gauge {
    metric.inspect(|metric| describe(*metric)).map_or_else(Gauge::noop, |metric| {
        let labels = labels.to_vec();
        metrics::gauge!(metric.name, labels)
    })
}

/// Describes and registers a distribution of times. It does nothing if there is no metric.
#[cfg(feature = "metrics")]
pub fn histogram(metric: Option<Metric>, labels: &[Label]) -> Histogram {
    metric.inspect(|metric| describe(*metric)).map_or_else(Histogram::noop, |metric| {
        let labels = labels.to_vec();
        metrics::histogram!(metric.name, labels)
    })
}
