//! A recorded session under a policy it was not bound to.

use macp_kernel::policy::Policy;
use macp_kernel::replay::{Stop, WhatIf};
use macp_wire::v1::WhatIfReplayResponse;

use crate::{ReadError, Source};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    /// The history does not even reproduce what it records.
    #[error("the history cannot be replayed as it is: {0}")]
    Unreproducible(Stop),
    #[error("the answer is longer than {bytes_max} bytes")]
    TooLong { bytes_max: usize },
    #[error("the history cannot be read")]
    Unreadable(#[from] ReadError),
}

/// Replays a history under a valid policy that covers its mode, beside the one it was bound to. An answer that gets
/// longer than `bytes_max` is given up.
pub fn what_if(
    source: &mut Source<'_>,
    candidate: Policy,
    bytes_max: usize,
) -> Result<WhatIfReplayResponse, WhatIfError> {
    let mut what_if = WhatIf::new(candidate);
    loop {
        let page = source.next_page()?;
        if page.is_empty() {
            return what_if.finish().map_err(WhatIfError::Unreproducible);
        }
        for (_, entry) in &page {
            what_if.feed(entry).map_err(WhatIfError::Unreproducible)?;
            if what_if.answer_bytes() > bytes_max {
                return Err(WhatIfError::TooLong { bytes_max });
            }
        }
    }
}
