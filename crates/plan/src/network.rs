//! Networks: ranges of addresses, and which of all addresses are public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses, written `10.1.0.0/16` or `fd00::/8`; an address alone is a range of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

/// A text that is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a network: write an address, `/` and how many of its leading bits count, as in 10.1.0.0/16")]
pub struct NotANetwork(String);

impl Network {
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, unmapped(address)) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                same_prefix(network.to_bits().into(), address.to_bits().into(), self.prefix, 32)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                same_prefix(network.to_bits(), address.to_bits(), self.prefix, 128)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let unreadable = || NotANetwork(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        // The parser's own error says no more than that this is not an address.
        let address: IpAddr = address.parse().map_err(|_| unreadable())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().ok().filter(|prefix| *prefix <= bits).ok_or_else(unreadable)?,
            None => bits,
        };
        Ok(Self { address, prefix })
    }
}

fn same_prefix(one: u128, other: u128, prefix: u32, bits: u32) -> bool {
    // Shifting by the whole width has no result; a prefix of 0 contains everything.
    prefix == 0 || (one ^ other) >> (bits - prefix) == 0
}

/// An IPv4 address that is written as an IPv6 address reaches the IPv4 network.
fn unmapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// Whether packets to an address leave for the Internet at large. Everything with a special purpose is not public:
/// this machine, the local network, the provider's network, metadata services, documentation, multicast.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match unmapped(address) {
        IpAddr::V4(four) => is_public_four(four),
        IpAddr::V6(six) => is_public_six(six),
    }
}

/// Networks of IPv4 that are not public, as network bits and prefix length.
const SPECIAL_FOUR: [([u8; 4], u32); 15] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

fn is_public_four(address: Ipv4Addr) -> bool {
    let within = |(network, prefix): &([u8; 4], u32)| {
        same_prefix(Ipv4Addr::from(*network).to_bits().into(), address.to_bits().into(), *prefix, 32)
    };
    !SPECIAL_FOUR.iter().any(within)
}

fn is_public_six(address: Ipv6Addr) -> bool {
    let [first, second, third, fourth, fifth, sixth, seventh, eighth] = address.segments();
    let embedded = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match (first, second) {
        // Translated to IPv4 on the way: what counts is where it ends.
        (0x64, 0xff9b) if [third, fourth, fifth, sixth] == [0; 4] => is_public_four(embedded(seventh, eighth)),
        (0x2002, _) => is_public_four(embedded(second, third)),
        // Teredo, benchmarking, ORCHID, and the other special assignments below 2001:200::.
        (0x2001, 0..=0x1ff) => false,
        // Documentation.
        (0x2001, 0xdb8) | (0x3fff, 0..=0xfff) => false,
        // Only this eighth of the space is given out; loopback, local and multicast addresses lie outside.
        _ => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_not_public() {
        let special = "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.254 169.254.169.254 \
                       172.16.0.1 172.31.255.255 192.0.0.8 192.0.2.1 192.168.1.1 198.19.0.1 224.0.0.1 240.0.0.1 \
                       255.255.255.255 :: ::1 ::127.0.0.1 ::ffff:10.0.0.1 ::ffff:127.0.0.1 64:ff9b::7f00:1 \
                       64:ff9b:1::1 100::1 2001::1 2001:db8::1 2002:7f00:1:: 2002:a00:1:: 3fff::1 fc00::1 fd12::1 \
                       fe80::1 fec0::1 ff02::1 5f00::1";
        for text in special.split_whitespace() {
            assert!(!is_public(text.parse().unwrap()), "{text} must not count as public");
        }
    }

    #[test]
    fn addresses_of_the_internet_are_public() {
        let public = "1.1.1.1 8.8.8.8 93.184.216.34 100.63.255.255 100.128.0.0 172.15.0.1 172.32.0.1 192.0.1.1 \
                      198.17.0.1 198.20.0.1 223.255.255.255 2606:4700::1111 2a00:1450::1 ::ffff:8.8.8.8 \
                      64:ff9b::808:808 2002:808:808::1";
        for text in public.split_whitespace() {
            assert!(is_public(text.parse().unwrap()), "{text} must count as public");
        }
    }

    #[test]
    fn networks_contain_what_shares_their_prefix() {
        let contains =
            |network: &str, address: &str| network.parse::<Network>().unwrap().contains(address.parse().unwrap());
        assert!(contains("10.1.0.0/16", "10.1.255.1"));
        assert!(!contains("10.1.0.0/16", "10.2.0.1"));
        assert!(contains("0.0.0.0/0", "203.0.113.9"));
        assert!(contains("127.0.0.1", "127.0.0.1"));
        assert!(!contains("127.0.0.1", "127.0.0.2"));
        assert!(contains("127.0.0.0/8", "::ffff:127.0.0.1"));
        assert!(contains("fd00::/8", "fd12::1"));
        assert!(!contains("fd00::/8", "fe80::1"));
        assert!(!contains("::/0", "10.0.0.1"));
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/-1", "example.com"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
