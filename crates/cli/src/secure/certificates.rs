//! A CA of this broker's own, and the certificate that it signs for the broker.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

const DAY: Duration = Duration::from_secs(86_400);
/// Clients keep the CA, so it lives long.
const CA_DAYS: u32 = 3_650;
/// The longest that clients of all kinds take.
const SERVER_DAYS: u32 = 825;
/// With less than this left a certificate is made anew.
const RENEW_DAYS: u32 = 90;
/// Clocks of clients may be behind.
const EARLIER_DAYS: u32 = 1;

/// The names that a broker's certificate is for: host names and addresses, each once.
pub(super) fn names(hosts: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let own = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    for name in own.into_iter().chain(hosts.iter().cloned()) {
        let name = match name.parse::<IpAddr>() {
            // Nobody can dial "every address".
            Ok(ip) if ip.is_unspecified() => continue,
            Ok(ip) => ip.to_string(),
            Err(_) => name.to_ascii_lowercase(),
        };
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn lasts(params: &mut CertificateParams, days: u32) {
    let now = SystemTime::now();
    params.not_before = (now - DAY * EARLIER_DAYS).into();
    params.not_after = (now + DAY * days).into();
}

/// The CA's certificate but for its times. Everything in it follows from the key, so that it can sign
/// later without its own file being read.
fn ca_params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let id = params.key_identifier(key);
    let id: String = id
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    params.distinguished_name = DistinguishedName::new();
    let name = format!("Tidemark broker's own CA {id}");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// A new CA: its key and its certificate, as PEM.
pub(super) fn new_ca() -> Result<(String, String), rcgen::Error> {
    ca_with(&KeyPair::generate()?)
}

/// The CA of a key: the key and its certificate, as PEM.
pub(super) fn ca_of(key: &str) -> Result<(String, String), rcgen::Error> {
    ca_with(&KeyPair::from_pem(key)?)
}

fn ca_with(key: &KeyPair) -> Result<(String, String), rcgen::Error> {
    let mut params = ca_params(key);
    lasts(&mut params, CA_DAYS);
    let certificate = params.self_signed(key)?;
    Ok((key.serialize_pem(), certificate.pem()))
}

/// A new certificate of the broker and its key, as one PEM.
pub(super) fn new_server(ca_key: &str, names: &[String]) -> Result<String, rcgen::Error> {
    let ca_key = KeyPair::from_pem(ca_key)?;
    let issuer = Issuer::new(ca_params(&ca_key), ca_key);
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "Tidemark broker");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    lasts(&mut params, SERVER_DAYS);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(certificate.pem() + &key.serialize_pem())
}

/// Why a certificate of the broker is to be made anew; `None`: it is good for these names and for long
/// enough.
pub(super) fn why_renew(server: &str, ca: &str, names: &[String]) -> Option<String> {
    let unreadable = || "it cannot be read".to_owned();
    let (Ok((_, server)), Ok((_, ca))) = (
        x509_parser::pem::parse_x509_pem(server.as_bytes()),
        x509_parser::pem::parse_x509_pem(ca.as_bytes()),
    ) else {
        return Some(unreadable());
    };
    judge(&server, &ca, names).unwrap_or_else(|| Some(unreadable()))
}

fn judge(server: &Pem, ca: &Pem, names: &[String]) -> Option<Option<String>> {
    let server = server.parse_x509().ok()?;
    let ca = ca.parse_x509().ok()?;
    if server.issuer() != ca.subject() {
        return Some(Some("another CA has signed it".to_owned()));
    }
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?;
    let now = i64::try_from(now.as_secs()).ok()?;
    let left_days = (server.validity().not_after.timestamp() - now).div_euclid(86_400);
    if left_days < i64::from(RENEW_DAYS) {
        return Some(Some(match left_days {
            past if past < 0 => "it has ended".to_owned(),
            left => format!("it ends in {left} days"),
        }));
    }
    let of = server.subject_alternative_name().ok()??;
    let has = |name: &String| {
        of.value.general_names.iter().any(|known| match known {
            GeneralName::DNSName(dns) => dns == name,
            GeneralName::IPAddress(bytes) => {
                let known = match *bytes {
                    [a, b, c, d] => Some(IpAddr::from([*a, *b, *c, *d])),
                    bytes => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
                };
                known.is_some_and(|known| known.to_string() == *name)
            }
            _ => false,
        })
    };
    let missing: Vec<&str> = names
        .iter()
        .filter(|name| !has(name))
        .map(String::as_str)
        .collect();
    Some(match missing.as_slice() {
        [] => None,
        missing => Some(format!("it is not for {}", missing.join(", "))),
    })
}

/// Days until a CA's certificate ends.
pub(super) fn ca_days_left(ca: &str) -> Option<i64> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(ca.as_bytes()).ok()?;
    let ca = pem.parse_x509().ok()?;
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?;
    let now = i64::try_from(now.as_secs()).ok()?;
    Some((ca.validity().not_after.timestamp() - now).div_euclid(86_400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_made_anew_when_it_is_not_for_the_names_or_of_another_ca() {
        let (ca_key, ca) = new_ca().unwrap();
        let names = names(&["Kafka.Example.com".to_owned(), "0.0.0.0".to_owned()]);
        assert_eq!(
            names,
            ["localhost", "127.0.0.1", "::1", "kafka.example.com"]
        );
        let server = new_server(&ca_key, &names).unwrap();
        assert_eq!(why_renew(&server, &ca, &names), None);
        let more = [names.clone(), vec!["10.1.2.3".to_owned()]].concat();
        assert_eq!(
            why_renew(&server, &ca, &more).unwrap(),
            "it is not for 10.1.2.3"
        );
        let (_, other_ca) = new_ca().unwrap();
        assert_eq!(
            why_renew(&server, &other_ca, &names).unwrap(),
            "another CA has signed it"
        );
        assert_eq!(why_renew("", &ca, &names).unwrap(), "it cannot be read");
        assert!(ca_days_left(&ca).is_some_and(|days| days > 3_600));
    }

    #[test]
    fn a_certificate_near_its_end_is_made_anew() {
        let (ca_key, ca) = new_ca().unwrap();
        let names = names(&[]);
        let ca_key = KeyPair::from_pem(&ca_key).unwrap();
        let issuer = Issuer::new(ca_params(&ca_key), ca_key);
        let made = |days: u32| {
            let mut params = CertificateParams::new(names.clone()).unwrap();
            lasts(&mut params, days);
            let key = KeyPair::generate().unwrap();
            params.signed_by(&key, &issuer).unwrap().pem()
        };
        assert_eq!(why_renew(&made(RENEW_DAYS + 1), &ca, &names), None);
        let soon = why_renew(&made(RENEW_DAYS - 1), &ca, &names).unwrap();
        assert!(soon.starts_with("it ends in"), "{soon}");
    }
}
