//! Runs seeds that have found something, a few others, and some twice.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use zk_simulation::cuts::Cuts;
use zk_simulation::run::{Report, run, run_cut};

/// Seeds with what they have found, one on each line. Between the two, a line may have options that
/// leave out parts of the seed, as the shrinking prints them.
const CORPUS: &str = include_str!("corpus.txt");
/// Seeds that nothing else runs. New ones would fail now and then for a change that is not to blame.
const OTHERS: Range<u64> = 1_000_001..1_000_041;
/// How many seeds to run twice.
const REPEATED: u64 = 16;

/// Returns the runs of a corpus.
fn runs(corpus: &str) -> Vec<(u64, Cuts)> {
    let lines = corpus.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let runs = lines.map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let options = words.iter().skip(1).step_by(2).take_while(|word| word.starts_with("--"));
        let (run, found) = words.split_at((1 + 2 * options.count()).min(words.len()));
        assert!(!found.is_empty(), "what has it found? {line}");
        Cuts::parse(&run.join(" ")).unwrap_or_else(|error| panic!("{line}: {error}"))
    });
    runs.collect()
}

fn assert_nothing_is_broken(report: &Report, cuts: &Cuts) {
    let violations: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
    assert!(
        violations.is_empty(),
        "seed {seed}: {violations:#?}\nreplay it with `cargo run --release -p zk-simulation -- \
         --seed {seed}{cuts} --trace`",
        seed = report.seed,
    );
}

#[test]
fn seeds_that_have_found_something_find_nothing() {
    let runs = runs(CORPUS);
    assert!(!runs.is_empty(), "the corpus is missing");
    for (seed, cuts) in runs {
        assert_nothing_is_broken(&run_cut(seed, &cuts), &cuts);
    }
}

#[test]
fn a_corpus_has_whole_seeds_and_reduced_ones() {
    let runs = runs("# Why.\n7 a fault\n\n8 --steps 4 --without cut,drops a fault\n");
    let [(7, whole), (8, reduced)] = &runs[..] else { panic!("{runs:?}") };
    assert!(whole.is_empty());
    assert_eq!(reduced.to_string(), " --without cut,drops --steps 4");
}

#[test]
fn other_seeds_find_nothing() {
    for seed in OTHERS {
        assert_nothing_is_broken(&run(seed), &Cuts::default());
    }
}

#[test]
fn a_seed_gives_the_same_run_on_a_busy_machine() {
    let first: Vec<u64> = (1..=REPEATED).map(|seed| run(seed).hash).collect();
    let is_over = AtomicBool::new(false);
    let second: Vec<u64> = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let hashes = (1..=REPEATED).map(|seed| run(seed).hash).collect();
        is_over.store(true, Ordering::Relaxed);
        hashes
    });
    assert_eq!(first, second);
}

#[test]
fn runs_differ_from_seed_to_seed_and_do_something() {
    let reports: Vec<Report> = (1..=REPEATED).map(run).collect();
    let mut hashes: Vec<u64> = reports.iter().map(|report| report.hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), reports.len());
    let (calls, faults): (u64, usize) = reports
        .iter()
        .fold((0, 0), |(calls, faults), one| (calls + one.operations, faults + one.faults.len()));
    assert!(calls > 300, "{calls} calls");
    assert!(faults > 100, "{faults} faults");
}
