//! The forms of a server's URL.
//!
//! | scheme | hosts | path |
//! |---|---|---|
//! | `redis`, `rediss` | one | the database, 0 by default |
//! | `unix` | none | the socket; database and login in the query, as `?db=1&user=NAME&pass=PASSWORD` |
//! | `redis+sentinel`, `rediss+sentinel` | the sentinels, port 26379 by default | the master's name, and perhaps its database |
//! | `redis+cluster`, `rediss+cluster` | some nodes | none: a Cluster has database 0 |
//!
//! User and password come before the hosts, and are for the Redis servers, not for the
//! sentinels. They never appear in an error or a log.

use redis::{ConnectionInfo, IntoConnectionInfo};
use sluicegate_core::ConfigError;
use sluicegate_core::error::ConfigErrorKind;

use super::tls::TrustedCa;
use super::{Deployment, Target, tcp};

impl Target {
    /// Reads a URL; see [`RedisStore::connect`](crate::RedisStore::connect) for the forms.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Store`], with the URL without its secrets, and the valid
    /// forms.
    pub(crate) fn parse(url: &str, tls: TrustedCa) -> Result<Self, ConfigError> {
        if url.starts_with("rediss") && url.contains("://") {
            info("rediss://localhost").map_err(|_| {
                refused(url, "TLS needs the feature `redis-tls` of sluicegate, or `tls` of sluicegate-redis")
            })?;
            tls.check()?;
        }
        Deployment::read(url, tls).map(Self).map_err(|problem| refused(url, &problem))
    }

    /// Checks a URL, without showing any of it.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Store`], with the valid forms.
    pub(crate) fn check(url: &str) -> Result<(), ConfigError> {
        // The URL may be valid even if this program is built without TLS.
        let plain = url.strip_prefix("rediss").map_or_else(|| url.to_owned(), |rest| format!("redis{rest}"));
        match Deployment::read(&plain, TrustedCa::default()) {
            Ok(_) => Ok(()),
            Err(problem) => Err(ConfigError::new(
                ConfigErrorKind::Store,
                format!("this is not the URL of a Redis: {problem}; write {FORMS}"),
            )),
        }
    }
}

impl Deployment {
    fn read(url: &str, tls: TrustedCa) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("there is no \"://\" in it")?;
        match scheme {
            "unix" if !rest.starts_with('/') => {
                Err("it names no socket, whose path begins with a slash".to_owned())
            }
            "redis" | "rediss" | "unix" => Ok(Self::Standalone { info: Box::new(info(url)?), tls }),
            "redis+cluster" | "rediss+cluster" => {
                let plain = if scheme.starts_with("rediss") { "rediss" } else { "redis" };
                let (login, hosts, path) = split(rest);
                if !matches!(path, "" | "0") {
                    return Err("a Cluster has database 0 only, and no master's name".to_owned());
                }
                let nodes = hosts.split(',').map(|host| info(&format!("{plain}://{login}{host}")));
                Ok(Self::Cluster { nodes: nodes.collect::<Result<_, _>>()?, tls })
            }
            "redis+sentinel" | "rediss+sentinel" => {
                let plain = if scheme.starts_with("rediss") { "rediss" } else { "redis" };
                let (login, hosts, path) = split(rest);
                let (master, db) = path.split_once('/').unwrap_or((path, "0"));
                if master.is_empty() {
                    return Err("the name of the master is missing behind the sentinels".to_owned());
                }
                let sentinels = hosts.split(',').map(|host| {
                    let host = if has_port(host) { host.to_owned() } else { format!("{host}:26379") };
                    Ok(info(&format!("redis://{host}"))?.addr().clone())
                });
                let sentinels = sentinels.collect::<Result<_, String>>()?;
                let info = Box::new(info(&format!("{plain}://{login}localhost/{db}"))?);
                Ok(Self::Sentinel { sentinels, master: master.to_owned(), info, tls })
            }
            _ => {
                Err("its scheme is not one of redis, rediss, unix, redis+sentinel, redis+cluster".to_owned())
            }
        }
    }
}

fn info(url: &str) -> Result<ConnectionInfo, String> {
    let info = url.into_connection_info().map_err(|_| mistake(url).to_owned())?;
    match info.redis_settings().db() {
        ..0 => Err("its database is below 0".to_owned()),
        _ => Ok(info.set_tcp_settings(tcp())),
    }
}

/// The error for an unreadable URL of one server. The client's own message would be about its code.
fn mistake(url: &str) -> &'static str {
    if url.starts_with("unix:") {
        return "it cannot be read: its database is ?db=1, and its login &user=NAME&pass=PASSWORD";
    }
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (_, host, database) = split(rest);
    let (name, port) = match has_port(host) {
        true => host.rsplit_once(':').unwrap_or((host, "")),
        false => (host, "6379"),
    };
    if name.is_empty() {
        "it names no host"
    } else if port.parse::<u16>().is_err() {
        "its port is not a number up to 65535"
    } else if !database.is_empty() && database.parse::<i64>().is_err() {
        "its database is not a number"
    } else if name.contains([':', '@', ' ']) && !name.starts_with('[') {
        "its host cannot be read"
    } else {
        "it cannot be read: characters of the password other than letters and digits are written as %40"
    }
}

/// The forms that a URL may have.
const FORMS: &str = "redis://host:6379/0, rediss://user:password@host, unix:///run/redis.sock, redis+sentinel://host:26379,host:26379/master \
                     or redis+cluster://host:7000,host:7001";

/// Whether there is a port: the colons of an IPv6 address are in its brackets.
fn has_port(host: &str) -> bool {
    host.rsplit_once(']').map_or(host, |(_, port)| port).contains(':')
}

/// `user:password@`, the hosts, and the text after the slash.
fn split(rest: &str) -> (String, &str, &str) {
    let (login, hosts) = rest.rsplit_once('@').map_or((String::new(), rest), |(l, h)| (format!("{l}@"), h));
    let (hosts, path) = hosts.split_once('/').unwrap_or((hosts, ""));
    (login, hosts, path)
}

/// An error that shows the URL without the password in it.
///
/// The password may be in the wrong place of the URL, so everything that could be the
/// password is left out.
fn refused(url: &str, problem: &str) -> ConfigError {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?***"));
    let shown = match rest.rsplit_once('@') {
        Some((_, hosts)) => format!("***@{hosts}"),
        // If the host was forgotten, the password is in the place of the port.
        None => match rest.split_once(':') {
            Some((_, port)) if !port.starts_with(|c: char| c.is_ascii_digit()) => "***".to_owned(),
            _ => rest.to_owned(),
        },
    };
    let shown = if scheme.is_empty() { shown } else { format!("{scheme}://{shown}{query}") };
    ConfigError::new(
        ConfigErrorKind::Store,
        format!("{shown:?} is not the URL of a Redis: {problem}; write {FORMS}"),
    )
}

#[cfg(test)]
mod tests {
    use redis::ConnectionAddr;

    use super::*;

    fn message(url: &str) -> String {
        match Target::parse(url, TrustedCa::default()) {
            Ok(target) => panic!("{url} is taken for {target}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn each_kind_of_deployment_has_a_url() {
        for (url, shown) in [
            ("redis://localhost", "localhost:6379"),
            ("redis://ada:secret@10.0.0.1:7000/3", "10.0.0.1:7000"),
            ("unix:///run/redis.sock", "/run/redis.sock"),
            ("unix:///run/redis.sock?db=3&user=NAME&pass=PASSWORD", "/run/redis.sock"),
            ("redis+sentinel://a,b:7000/main", "master main of 2 sentinels"),
            ("redis+sentinel://[::1],[::1]:7000/main", "master main of 2 sentinels"),
            ("redis+sentinel://ada:secret@a,b,c/main/2", "master main of 3 sentinels"),
            ("redis+cluster://a:7000", "cluster of 1 known nodes"),
            ("redis+cluster://ada:secret@a:7000,b:7001", "cluster of 2 known nodes"),
        ] {
            let target = Target::parse(url, TrustedCa::default()).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(target.to_string(), shown);
        }
    }

    #[test]
    fn sentinels_are_asked_at_their_own_port_and_the_master_gets_the_login() {
        let Ok(Target(Deployment::Sentinel { sentinels, info, .. })) =
            Target::parse("redis+sentinel://ada:secret@a,b:7000/main/2", TrustedCa::default())
        else {
            panic!("it is a Sentinel URL");
        };
        assert_eq!(sentinels.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:26379", "b:7000"]);
        let Ok(Target(Deployment::Sentinel { sentinels: of_v6, .. })) =
            Target::parse("redis+sentinel://[::1],[::1]:7000/main", TrustedCa::default())
        else {
            panic!("it is a Sentinel URL");
        };
        let port = |at: &ConnectionAddr| match at {
            ConnectionAddr::Tcp(_, port) => *port,
            other => panic!("{other}"),
        };
        assert_eq!(of_v6.iter().map(port).collect::<Vec<_>>(), [26_379, 7_000]);
        let redis = info.redis_settings();
        assert_eq!((redis.username(), redis.password(), redis.db()), (Some("ada"), Some("secret"), 2));
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn a_build_without_tls_names_the_feature_that_is_missing() {
        for url in ["rediss://localhost", "rediss+cluster://a:7000", "rediss+sentinel://a/main"] {
            assert!(message(url).contains("the feature `redis-tls`"), "{}", message(url));
        }
    }

    /// In the background, where rustls would panic, nobody could tell what is missing.
    #[cfg(feature = "tls")]
    #[test]
    fn tls_without_a_crypto_provider_is_refused_before_anybody_connects() {
        for url in ["rediss://localhost", "rediss+cluster://a:7000", "rediss+sentinel://a/main"] {
            let message = message(url);
            assert!(message.contains("no rustls crypto provider is installed: call"), "{message}");
        }
    }

    #[test]
    fn a_refused_url_says_what_would_be_accepted_and_hides_the_password() {
        for url in [
            "ada:hunter2@localhost:6379",
            "http://ada:hunter2@localhost",
            "redis://ada:hunter2@local host:99999",
            "redis://ada:hunter2@localhost:99999",
            "redis://ada:hunter2@localhost/database",
            "redis://ada:hunter2",
            "redis://ada:hunter2@localhost/-1",
            "unix:///run/redis.sock?db=x&pass=hunter2",
            "unix:///run/redis.sock?db=-1&pass=hunter2",
            "unix://localhost?pass=hunter2",
            "redis+sentinel://ada:hunter2@a,b",
            "redis+sentinel://ada:hunter2@a,b/main/x",
            "redis+cluster://ada:hunter2@a:7000,b:x",
            "redis+cluster://ada:hunter2@a:7000/3",
            "redis+cluster://ada:hunter2@",
            "redis+cluster://ada:hunter2@a@b:x",
        ] {
            let message = message(url);
            assert!(!message.contains("hunter2"), "{message}");
            assert!(message.contains("write redis://host:6379/0"), "{message}");
            let checked = Target::check(url).expect_err(url).to_string();
            let secrets = ["hunter2", "ada", "localhost", "a:7000"];
            assert!(secrets.iter().all(|secret| !checked.contains(secret)), "{checked}");
            assert_eq!(
                checked.split_once("a Redis: ").map(|(_, problem)| problem),
                message.split_once("a Redis: ").map(|(_, problem)| problem)
            );
        }
        assert!(Target::check("rediss://ada:hunter2@localhost").is_ok(), "it is a URL without TLS, too");
        assert!(message("http://localhost").contains("http"), "what is not secret is shown");
    }

    #[test]
    fn a_url_that_cannot_be_read_is_told_in_words_of_its_own() {
        for (url, says) in [
            ("redis://", "it names no host"),
            ("redis://:6379", "it names no host"),
            ("redis+cluster://a,", "it names no host"),
            ("redis://host:99999", "its port is not a number up to 65535"),
            ("redis://ada:hunter2@host:port/1", "its port is not a number up to 65535"),
            ("redis+sentinel://a:99999/mymaster", "its port is not a number up to 65535"),
            ("redis://host/one", "its database is not a number"),
            ("redis+sentinel://a/mymaster/one", "its database is not a number"),
            ("redis://ho st", "cannot be read"),
        ] {
            let error = Target::check(url).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
