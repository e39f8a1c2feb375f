//! Medians that follow slowly: now and then a thread that loses its processor in the middle of a sample counts as one sample
//! among others.

/// How much of itself an estimate moves with each sample: a 16th.
const STEP: u32 = 16;

/// `estimate`, moved towards `sample`.
pub(crate) fn nearer(estimate: u32, sample: u32) -> u32 {
    if sample > estimate { estimate + estimate / STEP } else { estimate - estimate / STEP }
}
