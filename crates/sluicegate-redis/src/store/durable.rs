//! Checks that the servers keep their counts over a restart, and while their memory is full: [`check`].

use redis::{FromRedisValue, Value};

use crate::connection::Probe;

/// Adds a check of the settings to the probe of each new connection. It uses `INFO`, not `CONFIG GET`, because hosted Redis services
/// allow `INFO` more often. A Cluster answers for each of its primaries.
pub(super) fn check(probe: &mut Probe) {
    probe.step(redis::cmd("INFO"), |reply| {
        judge(reply).map_err(|problem| format!("it is not durable: {problem}"))
    });
}

fn judge(reply: &Value) -> Result<(), String> {
    if let Value::Map(servers) = reply {
        let of = |server: &Value| String::from_redis_value_ref(server).unwrap_or_default();
        return servers.iter().try_for_each(|(server, info)| {
            judge(info).map_err(|problem| format!("{}: {problem}", of(server)))
        });
    }
    let info = String::from_redis_value_ref(reply).map_err(|error| error.to_string())?;
    let field =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let (Some(aof), Some(memory), Some(policy)) =
        (field("aof_enabled"), field("maxmemory"), field("maxmemory_policy"))
    else {
        return Err(
            "its INFO does not tell aof_enabled, maxmemory and maxmemory_policy; leave `durable` out if it keeps \
             its data in another way"
                .to_owned(),
        );
    };
    let mut missing = Vec::new();
    if aof != "1" {
        missing.push(
            "it keeps nothing over a restart: set \"appendonly yes\" in its configuration, or now by CONFIG SET appendonly yes"
                .to_owned(),
        );
    }
    if memory != "0" && policy != "noeviction" {
        missing.push(format!(
            "it forgets keys when its memory is full, by maxmemory-policy {policy}: set \"maxmemory-policy noeviction\""
        ));
    }
    if missing.is_empty() { Ok(()) } else { Err(missing.join("; and ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(aof: &str, memory: &str, policy: &str) -> Value {
        let text = format!(
            "# Memory\r\nmaxmemory:{memory}\r\nmaxmemory_human:0B\r\nmaxmemory_policy:{policy}\r\n\r\n# Persistence\r\naof_enabled:{aof}\r\n"
        );
        Value::BulkString(text.into_bytes())
    }

    #[test]
    fn each_thing_that_is_missing_is_named_with_the_setting_that_mends_it() {
        assert_eq!(judge(&info("1", "0", "allkeys-lru")), Ok(()), "without a bound nothing is forgotten");
        assert_eq!(judge(&info("1", "100", "noeviction")), Ok(()));
        let problem = judge(&info("0", "100", "volatile-ttl")).unwrap_err();
        for part in ["\"appendonly yes\"", "volatile-ttl", "\"maxmemory-policy noeviction\""] {
            assert!(problem.contains(part), "{part}: {problem}");
        }
        let problem = judge(&Value::SimpleString("redis_version:7.0.0".to_owned())).unwrap_err();
        assert!(problem.contains("aof_enabled") && problem.contains("leave `durable` out"), "{problem}");
    }

    #[test]
    fn the_primary_of_a_cluster_that_is_not_durable_is_named() {
        let of = |name: &str, info| (Value::BulkString(name.as_bytes().to_vec()), info);
        let good = || of("10.0.0.1:7000", info("1", "0", "noeviction"));
        assert_eq!(judge(&Value::Map(vec![good(), good()])), Ok(()));
        let bad = of("10.0.0.2:7001", info("0", "0", "noeviction"));
        let problem = judge(&Value::Map(vec![good(), bad])).unwrap_err();
        assert!(problem.starts_with("10.0.0.2:7001: it keeps nothing"), "{problem}");
    }
}
