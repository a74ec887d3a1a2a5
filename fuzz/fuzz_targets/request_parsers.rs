#![no_main]

#[path = "../targets/request_parsers.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    target::request_parsers(bytes);
});
