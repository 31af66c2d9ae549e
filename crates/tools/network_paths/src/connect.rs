//! TCP connections that are closed as soon as they are made.

use std::net::SocketAddr;
use std::time::Duration;

use shard_runtime::Clock;
use tokio::net::TcpStream;

use crate::{MOST_TRIES, Options, Tries};

pub(crate) async fn tries(to: SocketAddr, options: Options, clock: &dyn Clock) -> Tries {
    let mut results: Vec<Result<Duration, String>> = Vec::new();
    for number in 0..options.tries.min(MOST_TRIES) {
        if number > 0 {
            tokio::time::sleep(options.interval).await;
        }
        let begun = clock.now();
        let made = tokio::time::timeout(options.timeout, TcpStream::connect(to)).await;
        results.push(match made {
            Ok(Ok(_)) => Ok(clock.now().since(begun)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} ms", options.timeout.as_millis())),
        });
    }
    Tries::of(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shard_runtime::SystemClock;

    #[tokio::test]
    async fn a_port_that_answers_and_one_that_does_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let options = Options { tries: 3, interval: Duration::ZERO, ..Options::default() };
        let clock = SystemClock::default();
        assert_eq!(tries(address, options, &clock).await.answered, 3);
        drop(listener);
        let refused = tries(address, options, &clock).await;
        assert_eq!((refused.made, refused.answered), (3, 0));
        assert!(refused.problem.unwrap().contains("refused"));
    }
}
