//! Signed tickets: [`RoomTicket`], the [`Secrets`] that sign them, and the [`TicketFault`]s of bad ones.
//!
//! # The form of a ticket
//! | bytes | hold |
//! |---|---|
//! | 1 | 0 for a place, 1 for a pass |
//! | 8 | the beginning of a BLAKE3 hash of the room's name |
//! | 8, 4 | the number and the lot of the place |
//! | 8, 8 | issued and expires, in microseconds since the Unix epoch |
//! | 8 | a digest of the key of its client, or 0 if places are not counted by client |
//! | 32 | a BLAKE3 hash of everything before it, keyed by the secret |
//!
//! Numbers are big-endian, and the whole is Base64 for URLs without padding: 103 letters. It is not encrypted: a visitor may read its
//! place, but cannot change it. Keys are derived from the secrets, so a secret may have any length from 16 bytes on.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use blake3::Hash;
use sluicegate_core::ConfigError;
use sluicegate_core::error::ConfigErrorKind;

use crate::line::LinePlace;

/// A place in line or a pass, as the visitor keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoomTicket {
    pub(crate) is: TicketUse,
    pub(crate) place: LinePlace,
    /// Microseconds of the room's clock, like all moments here.
    pub(crate) issued_us: u64,
    pub(crate) expires_us: u64,
    /// The client of the ticket, by [`Secrets::client`]; 0 if any client may use it.
    pub(crate) client: u64,
}

/// The use of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TicketUse {
    Place,
    Pass,
}

/// The reason why a ticket is invalid. Its visitor gets a new place at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TicketFault {
    Malformed,
    Forged,
    OtherRoom,
    Expired,
    OtherClient,
}

impl fmt::Display for TicketFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the ticket cannot be read",
            Self::Forged => "the ticket is not signed by this service",
            Self::OtherRoom => "the ticket is for another room",
            Self::Expired => "the ticket has expired",
            Self::OtherClient => "the ticket is another client's",
        })
    }
}

/// The shortest secret, in bytes.
const SHORTEST: usize = 16;

/// The bytes of a ticket without its signature.
const LENGTH: usize = 45;

/// A ticket in text, in bytes.
const TEXT: usize = ((LENGTH + blake3::OUT_LEN) * 4).div_ceil(3);

/// The keys of one room's tickets: the first one signs, and all of them verify.
pub(crate) struct Secrets {
    room: [u8; 8],
    keys: Vec<[u8; 32]>,
    /// The keys that hide clients, one for each secret.
    clients: Vec<[u8; 32]>,
}

impl Secrets {
    /// # Errors
    /// When a secret is too short; the error names its length.
    pub(crate) fn new(room: &str, secrets: &[Vec<u8>]) -> Result<Self, ConfigError> {
        if let Some(short) = secrets.iter().find(|secret| secret.len() < SHORTEST) {
            let problem = format!(
                "a secret of {} bytes for the tickets of {room:?}: use at least {SHORTEST}, from a random source",
                short.len()
            );
            return Err(ConfigError::new(ConfigErrorKind::Layer, problem));
        }
        let key =
            |secret: &Vec<u8>| blake3::derive_key("sluicegate 2026-11-22 tickets of waiting rooms", secret);
        let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(room.as_bytes()).as_bytes();
        let clients = |secret: &Vec<u8>| {
            let material = [secret, room.as_bytes()].concat();
            blake3::derive_key("sluicegate 2026-11-22 clients of waiting rooms", &material)
        };
        Ok(Self {
            room: [a, b, c, d, e, f, g, h],
            keys: secrets.iter().map(key).collect(),
            clients: secrets.iter().map(clients).collect(),
        })
    }

    /// A digest of a client's key. Addresses are few, so the digest is keyed: it reveals nothing without the secret, and it differs in each
    /// room.
    pub(crate) fn client(&self, key: &[u8]) -> u64 {
        self.client_in(false, key)
    }

    /// The digest in a ticket that the former secret has signed, or the current one.
    pub(crate) fn client_in(&self, is_of_former: bool, key: &[u8]) -> u64 {
        let clients = self.clients.get(usize::from(is_of_former));
        clients.map_or(0, |clients| number(blake3::keyed_hash(clients, key).as_bytes(), 0))
    }

    /// The ticket as text, of letters, digits, `-` and `_`.
    pub(crate) fn sign(&self, ticket: &RoomTicket) -> String {
        let mut bytes = Vec::with_capacity(LENGTH + blake3::OUT_LEN);
        bytes.push(match ticket.is {
            TicketUse::Place => 0,
            TicketUse::Pass => 1,
        });
        bytes.extend(self.room);
        bytes.extend(ticket.place.number.to_be_bytes());
        bytes.extend(ticket.place.lot.to_be_bytes());
        bytes.extend(ticket.issued_us.to_be_bytes());
        bytes.extend(ticket.expires_us.to_be_bytes());
        bytes.extend(ticket.client.to_be_bytes());
        let signature = self.keys.first().map(|key| blake3::keyed_hash(key, &bytes));
        bytes.extend(signature.iter().flat_map(|hash| *hash.as_bytes()));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The ticket, and whether the former secret has signed it, so that it has to be signed anew.
    ///
    /// # Errors
    /// When the ticket is invalid here and now.
    pub(crate) fn read(&self, text: &[u8], now_us: u64) -> Result<(RoomTicket, bool), TicketFault> {
        if text.len() != TEXT {
            return Err(TicketFault::Malformed);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| TicketFault::Malformed)?;
        let (signed, signature) = bytes.split_at_checked(LENGTH).ok_or(TicketFault::Malformed)?;
        let signature = Hash::from_slice(signature).map_err(|_| TicketFault::Malformed)?;
        // Hashes are compared in constant time.
        let signs = |key: &[u8; 32]| blake3::keyed_hash(key, signed) == signature;
        let by = self.keys.iter().position(signs).ok_or(TicketFault::Forged)?;
        let (is, room, place) = (signed[0], &signed[1..9], LinePlace::new(number(signed, 9), lot(signed)));
        if *room != self.room {
            return Err(TicketFault::OtherRoom);
        }
        let is = if is == 1 { TicketUse::Pass } else { TicketUse::Place };
        let (issued_us, expires_us, client) = (number(signed, 21), number(signed, 29), number(signed, 37));
        let ticket = RoomTicket { is, place, issued_us, expires_us, client };
        if ticket.expires_us <= now_us {
            return Err(TicketFault::Expired);
        }
        Ok((ticket, by > 0))
    }
}

/// The number in the eight bytes from here on.
fn number(bytes: &[u8], from: usize) -> u64 {
    bytes[from..from + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn lot(bytes: &[u8]) -> u32 {
    bytes[17..21].iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKET: RoomTicket = RoomTicket {
        is: TicketUse::Pass,
        place: LinePlace { number: 7, lot: 9 },
        issued_us: 5,
        expires_us: 1_000,
        client: 11,
    };

    fn secrets(room: &str, of: &[u8]) -> Secrets {
        let all: Vec<Vec<u8>> = of.iter().map(|byte| vec![*byte; 16]).collect();
        Secrets::new(room, &all).unwrap()
    }

    #[test]
    fn a_ticket_reads_back_under_either_secret_until_it_expires() {
        let old = secrets("sale", &[1]).sign(&TICKET);
        let rotated = secrets("sale", &[2, 1]);
        assert_eq!(rotated.read(old.as_bytes(), 999), Ok((TICKET, true)));
        assert_eq!(rotated.read(rotated.sign(&TICKET).as_bytes(), 0), Ok((TICKET, false)));
        assert_eq!(rotated.read(old.as_bytes(), 1_000), Err(TicketFault::Expired));
        assert_eq!(secrets("sale", &[2]).read(old.as_bytes(), 0), Err(TicketFault::Forged));
        assert_eq!(secrets("other", &[1]).read(old.as_bytes(), 0), Err(TicketFault::OtherRoom));
    }

    #[test]
    fn no_other_byte_and_no_other_length_is_a_ticket() {
        let secrets = secrets("sale", &[1]);
        let text = secrets.sign(&TICKET).into_bytes();
        assert_eq!(text.len(), TEXT);
        for at in 0..text.len() {
            let mut other = text.clone();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            assert!(secrets.read(&other, 0).is_err(), "{at}");
        }
        for wrong in [&text[1..], b"", &[text.as_slice(), b"A"].concat(), &[b'!'; TEXT], &[0xff; TEXT]] {
            assert_eq!(secrets.read(wrong, 0), Err(TicketFault::Malformed));
        }
    }

    #[test]
    fn a_client_is_a_number_that_only_the_secret_finds() {
        let address = b"198.51.100.7";
        let client = secrets("sale", &[1, 2]).client(address);
        assert_eq!(client, secrets("sale", &[1]).client(address), "the former secret is no part of it");
        assert_eq!(
            client,
            secrets("sale", &[2, 1]).client_in(true, address),
            "tickets of it are known by it"
        );
        let plain = number(blake3::hash(address).as_bytes(), 0);
        let others = [secrets("sale", &[2]).client(address), secrets("other", &[1]).client(address), plain];
        assert!(!others.contains(&client), "{client}: {others:?}");
    }

    #[test]
    fn a_short_secret_is_named_by_its_length() {
        let error = Secrets::new("sale", &[vec![1; 16], vec![1; 15]]).err().unwrap().to_string();
        assert_eq!(
            error,
            "a secret of 15 bytes for the tickets of \"sale\": use at least 16, from a random source"
        );
    }
}
