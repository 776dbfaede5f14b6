//! Harness shared by the suites of this package.
