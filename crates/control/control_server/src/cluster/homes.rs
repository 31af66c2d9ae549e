//! Where pools should be, in the shared state: who takes a pool over looks there, as the configuration may not be at hand then.

use cluster_store::keys::{Key, NodeId, PoolId};
use cluster_store::values::{Home, Value as _};
use cluster_store::{Step, Transaction};
use control_api::{Code, Problem};

use super::Cluster;

impl Cluster {
    /// Has a pool taken over by the first of these nodes that can; by any when there are none.
    ///
    /// # Errors
    /// When there is no such node, or the shared state does not answer.
    pub(crate) async fn set_home(&self, pool: PoolId, nodes: &[String]) -> Result<(), Problem> {
        let nodes: Vec<NodeId> =
            nodes.iter().map(|node| self.number_of(node)).collect::<Result<_, Problem>>()?;
        let key = Key::Home(pool).path(&self.name);
        let step = if nodes.is_empty() {
            Step::Delete(key)
        } else {
            let value = Home { nodes }.encode();
            Step::Put(key, value.map_err(|why| Problem::new(Code::InvalidRequest, why.to_string()))?)
        };
        let written = self.store.transact(Transaction { steps: vec![step], ..Transaction::default() }).await;
        written.map(drop).map_err(|error| {
            let detail = format!("it is kept where the pool should be, but not for a takeover: {error}.");
            Problem::new(Code::Unavailable, detail)
                .todo("Say it again when `holdfast cluster status` is well.")
        })
    }
}
