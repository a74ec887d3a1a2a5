/// Any bytes: the decoder must not panic, a refused blob must leave the sketch alone, and an accepted one must come
/// back to the same registers from either encoding. True if the blob was accepted.
pub fn sketch_decode(bytes: &[u8]) -> bool {
    use headcount::domain::sketch::wire;

    let Ok(sketch) = wire::decode(bytes) else {
        let mut untouched = headcount::domain::sketch::registers::Sketch::new();
        assert!(wire::merge_into(&mut untouched, bytes).is_err());
        assert!(untouched.is_empty(), "a refused blob raised a register");
        return false;
    };
    let again = |blob: &[u8]| wire::decode(blob).expect("our own encoding is sound");
    assert!(again(&wire::encode(&sketch)) == sketch, "the chosen encoding changed the registers");
    assert!(again(&wire::encode_dense(&sketch)) == sketch, "dense changed the registers");
    if let Some(sparse) = wire::encode_sparse(&sketch) {
        assert!(again(&sparse) == sketch, "sparse changed the registers");
    }
    // Whatever the registers, the estimator ends, with a number or with "saturated".
    assert!(sketch.estimate().is_ok_and(|users| users >= 0.0) || sketch.estimate().is_err());
    true
}
