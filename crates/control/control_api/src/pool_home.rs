//! The home of a pool: nodes of the cluster where it should be.

use crate::{Code, PoolConfig, Problem};

/// The most nodes of a home.
const MOST: usize = 64;

/// A home is a list of different nodes, of which this node need not know any; what they are called is not looked at.
///
/// # Errors
/// When it cannot be one.
pub fn check_home(pool: &PoolConfig) -> Result<(), Problem> {
    let bad = |why: &str| {
        let name = &pool.name;
        Err(Problem::new(Code::InvalidRequest, format!("pool {name}: its home {why}."))
            .todo("Name nodes as `holdfast node list` does, the preferred one first."))
    };
    if pool.home.len() > MOST {
        return bad(&format!("has more than {MOST} nodes"));
    }
    for (index, node) in pool.home.iter().enumerate() {
        if pool.home.iter().take(index).any(|other| other == node) {
            return bad(&format!("has node {node} twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_has_each_node_once() {
        let check = |home: &[&str]| {
            let home = home.iter().map(|&node| node.to_owned()).collect();
            check_home(&PoolConfig { home, ..PoolConfig::new("p", uuid::Uuid::nil()) })
        };
        assert!(check(&[]).is_ok());
        assert!(check(&["n1", "n2"]).is_ok());
        for bad in [&["n1", "n1"][..], &["n"; 65]] {
            assert_eq!(check(bad).expect_err("refused").code, Code::InvalidRequest, "{bad:?}");
        }
    }
}
