//! What servers have accepted of this client. It decides whether a refusal is final: a server that
//! refuses what another one has accepted differs from the others, because it was changed first or by
//! mistake.

/// What servers have accepted of this client. Nothing takes it back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Accepted {
    sasl: bool,
    auth: bool,
    request: bool,
}

impl Accepted {
    /// Records that a server has accepted the SASL credentials.
    pub(super) fn note_sasl(&mut self) {
        self.sasl = true;
    }

    /// Returns true if a server has accepted the SASL credentials.
    pub(super) fn has_sasl(self) -> bool {
        self.sasl
    }

    /// Records that a server has accepted all auth packets.
    pub(super) fn note_auth(&mut self) {
        self.auth = true;
    }

    /// Returns true if a server has accepted all auth packets.
    pub(super) fn has_auth(self) -> bool {
        self.auth
    }

    /// Records that a server has served a request.
    pub(super) fn note_request(&mut self) {
        self.request = true;
    }

    /// Returns true if a server has served a request.
    pub(super) fn has_request(self) -> bool {
        self.request
    }
}
