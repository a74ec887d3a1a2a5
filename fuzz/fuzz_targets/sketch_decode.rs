#![no_main]

#[path = "../targets/sketch_decode.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    target::sketch_decode(bytes);
});
