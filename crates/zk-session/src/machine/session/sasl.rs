//! Authentication with SASL: rounds of messages, before anything else is sent.

use jute_codec::{ErrorCode, OpCode, Reader, Request, Response, SaslToken};
use tracing::{debug, warn};

use super::{Phase, SessionMachine};
use crate::error::SaslFailure;
use crate::machine::cause::DisconnectCause;
use crate::machine::event::Event;
use crate::machine::inflight::Purpose;
use crate::machine::sasl::{SaslInput, SaslStep};
use crate::machine::status::{Change, SessionState};
use crate::time::Time;

/// Limit on the messages of the client in one exchange. DIGEST-MD5 has two, and GSSAPI three.
const ROUNDS_MAX: u32 = 10;

/// Maximum length of a frame before the exchange is complete. The longest messages are those of
/// Kerberos with many groups in a ticket, which stay below 64 KiB.
pub(super) const MESSAGE_MAX: usize = 64 * 1024;

impl SessionMachine {
    /// Handles the next step of the mechanism, in reply to [`Event::Sasl`]. The driver must not call
    /// this for a connection that has ended.
    pub(crate) fn handle_sasl(&mut self, now: Time, step: Result<SaslStep, SaslFailure>) {
        self.advance(now);
        let Phase::Sasl(round) = self.link.phase else {
            panic!("the machine expects no SASL message in {:?}", self.link.phase);
        };
        match step {
            Ok(SaslStep::Done) => {
                debug!("authenticated with SASL");
                self.accepted.note_sasl();
                self.link.limit_frames(self.config.response_limit);
                let held_back = self.link.unproven.take();
                let (response, sent) = held_back.expect("the exchange follows the handshake");
                self.handle_connect_response(response, sent);
            }
            Ok(SaslStep::Send(_)) if round >= ROUNDS_MAX => {
                self.drop_connection(SaslFailure::TooManyRounds(round).into());
            }
            Ok(SaslStep::Send(token)) => {
                self.link.phase = Phase::Sasl(round + 1);
                self.send_internal(&Request::Sasl(token), Purpose::Sasl);
            }
            Err(failure) => self.drop_connection(failure.into()),
        }
    }

    /// Starts the SASL exchange.
    pub(super) fn begin_sasl(&mut self) {
        self.link.phase = Phase::Sasl(0);
        self.begin_time_again();
        self.link.limit_frames(self.config.response_limit.min(MESSAGE_MAX));
        self.events.push_back(Event::Sasl(SaslInput::Start));
    }

    /// Handles the reply to a SASL message.
    pub(super) fn handle_sasl_reply(
        &mut self,
        code: ErrorCode,
        mut body: Reader,
        oversized: Option<usize>,
    ) -> Result<(), DisconnectCause> {
        if !code.is_ok() {
            self.handle_sasl_refusal(code);
            return Ok(());
        }
        if let Some(length) = oversized {
            return Err(DisconnectCause::TooLong(length));
        }
        match Response::decode(OpCode::SASL, &mut body) {
            Ok(Response::Sasl(token)) => self.ask_mechanism(token),
            Ok(_) => unreachable!("the opcode determines the kind of reply"),
            Err(error) => {
                return Err(DisconnectCause::Record { record: "SetSASLResponse", error });
            }
        }
        Ok(())
    }

    fn ask_mechanism(&mut self, token: SaslToken) {
        self.events.push_back(Event::Sasl(SaslInput::Reply(token)));
    }

    /// Handles the refusal of a SASL message.
    ///
    /// A refusal is final as long as no server has accepted the credentials: they are wrong. After
    /// that, it is one server that differs from the others, because it was changed first or by
    /// mistake. Another server may still accept them, and the session with its locks survives.
    fn handle_sasl_refusal(&mut self, code: ErrorCode) {
        let refuses_credentials =
            matches!(code, ErrorCode::AUTH_FAILED | ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH);
        if refuses_credentials && !self.accepted.has_sasl() {
            warn!(%code, "a server refused the SASL credentials");
            self.emit(Change::AuthFailed);
            self.stop(SessionState::AuthFailed);
        } else {
            self.drop_connection(DisconnectCause::SaslRefused(code));
        }
    }

    /// Returns true if a server that requires SASL costs a connection only. A client without SASL
    /// that another server has served goes on to the next server, as with refused credentials: the
    /// servers are being changed one by one, or this one was changed by mistake.
    pub(super) fn survives_required_sasl(&self) -> bool {
        self.config.sasl || self.accepted.has_request()
    }

    /// Handles the code with which a server refuses every request, and even pings, of a connection
    /// that is not authenticated with SASL. It then closes the connection.
    pub(super) fn handle_sasl_required(&mut self) {
        let code = ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH;
        if matches!(self.link.phase, Phase::Idle | Phase::Stopped(_)) {
            return;
        }
        if self.survives_required_sasl() {
            self.drop_connection(DisconnectCause::SaslRefused(code));
        } else {
            warn!(%code, "the server requires authentication, usually with SASL, and the client has none");
            self.emit(Change::AuthFailed);
            self.stop(SessionState::AuthFailed);
        }
    }
}
