//! Modes an operator registers at run time: a list of message types and who may send them, no logic of their own.

use macp_wire::v1::ModeDescriptor;

/// A registered extension mode. A session keeps the one it started under in its first entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Extension {
    pub descriptor: ModeDescriptor,
    /// Promoted: sessions start under the strict contract.
    pub promoted: bool,
}

impl Extension {
    pub fn knows(&self, message_type: &str) -> bool {
        self.descriptor.message_types.iter().any(|known| known == message_type)
    }
}
