//! What no backend should do, each with care that it really happens.
#![allow(
    unsafe_code,
    clippy::exit,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "that is what they are for"
)]

use std::{
    hint::black_box, io::Write as _, mem::ManuallyDrop, os::fd::FromRawFd, process::Command,
    thread, time::Duration,
};

const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn null_write() {
    // SAFETY: there is none; the process must die.
    unsafe { std::ptr::write_volatile(black_box(std::ptr::null_mut::<u8>()), 1) };
}

#[expect(unconditional_recursion, reason = "the stack must end")]
pub(crate) fn stack_overflow(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    stack_overflow(depth + 1) + frame[63]
}

/// Takes memory until it gets none; it is not used, so that a machine without a limit has a chance.
pub(crate) fn allocation_bomb() {
    let mut all = Vec::new();
    loop {
        all.push(black_box(Vec::<u8>::with_capacity(64 << 20)));
    }
}

/// Writes nonsense to whatever is open.
pub(crate) fn babble() {
    for descriptor in 3..32 {
        // SAFETY: the descriptors are not closed; what is written into them is the point.
        let mut file = unsafe { ManuallyDrop::new(std::fs::File::from_raw_fd(descriptor)) };
        drop(file.write_all(&[0xff; 64]));
    }
    thread::sleep(HOUR);
}

pub(crate) fn threads_left() {
    for _ in 0..8 {
        thread::spawn(|| thread::sleep(HOUR));
    }
}

pub(crate) fn noise() {
    for number in 0..10_000 {
        println!("noise {number}");
    }
    eprint!("{}", "x".repeat(100_000));
}

/// Starts a child of its own that would outlive it.
pub(crate) fn child_left() {
    let child = Command::new("sleep").arg("3600").spawn();
    if child.is_ok() {
        std::process::abort();
    }
}

/// Memory and file limits, whether privileges can be gained (1: never), and the names of variables that begin with `DSTACK_`.
pub(crate) fn confinement() -> String {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.get(name.len()..)?.split_whitespace().next())
            .unwrap_or_default()
            .to_owned()
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let privileges = status
        .lines()
        .find_map(|line| line.strip_prefix("NoNewPrivs:"))
        .unwrap_or_default();
    let variables: Vec<String> = std::env::vars()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("DSTACK_"))
        .collect();
    format!(
        "{} {} {} {} [{}]",
        limit("Max address space"),
        limit("Max open files"),
        limit("Max core file size"),
        privileges.trim(),
        variables.join(",")
    )
}
