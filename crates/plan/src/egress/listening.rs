//! The addresses that the server itself listens on. A plan reaches them only where a rule lists them with their port: a
//! call to them would come from this machine, past whatever guards the server from outside.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Addresses as bound; a wildcard stands for every address of this machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Listening(Vec<SocketAddr>);

impl Listening {
    pub(super) fn new(addresses: &[SocketAddr]) -> Self {
        Self(addresses.to_vec())
    }

    /// Whether a connection to this address and port ends at the server itself.
    pub(super) fn contains(&self, address: IpAddr, port: u16) -> bool {
        let address = reached(address);
        self.0.iter().any(|own| {
            let is_wildcard = own.ip().is_unspecified();
            own.port() == port && (if is_wildcard { is_local(address) } else { reached(own.ip()) == address })
        })
    }
}

/// Where a connection to an address ends: an IPv4 address may be written as an IPv6 one, and the unspecified address
/// leads to this machine.
fn reached(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}

/// Whether an address is one of this machine. Interfaces come and go, so the operating system is asked each time: it
/// binds a socket to nothing but its own addresses. Any doubt counts as yes.
fn is_local(address: IpAddr) -> bool {
    let foreign = |error: io::Error| error.kind() == io::ErrorKind::AddrNotAvailable;
    address.is_loopback() || !UdpSocket::bind((address, 0)).is_err_and(foreign)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(own: &str, target: &str) -> bool {
        let target: SocketAddr = target.parse().unwrap();
        Listening::new(&[own.parse().unwrap()]).contains(target.ip(), target.port())
    }

    #[test]
    fn an_address_is_recognised_in_every_form() {
        for target in ["127.0.0.1:50051", "[::ffff:127.0.0.1]:50051", "0.0.0.0:50051", "[::ffff:0.0.0.0]:50051"] {
            assert!(contains("127.0.0.1:50051", target), "{target}");
        }
        for target in ["127.0.0.1:50052", "127.0.0.2:50051", "10.0.0.1:50051", "[::1]:50051"] {
            assert!(!contains("127.0.0.1:50051", target), "{target}");
        }
        assert!(contains("[::1]:50051", "[::]:50051"));
        assert!(contains("[::ffff:127.0.0.1]:50051", "127.0.0.1:50051"));
    }

    #[test]
    fn a_wildcard_is_every_address_of_this_machine() {
        for own in ["0.0.0.0:50051", "[::]:50051"] {
            for target in ["127.0.0.1:50051", "127.9.9.9:50051", "[::1]:50051", "0.0.0.0:50051"] {
                assert!(contains(own, target), "{own} {target}");
            }
            // Documentation addresses belong to no machine.
            for target in ["192.0.2.1:50051", "[2001:db8::1]:50051", "127.0.0.1:50052"] {
                assert!(!contains(own, target), "{own} {target}");
            }
        }
    }
}
