//! One connection from its first byte to its last: the login phase, then the full feature phase.

use std::sync::Arc;

use tcp_service::Arrived;

use crate::connection::Connection;
use crate::limits::LOGIN_TIMEOUT;
use crate::login_phase::{Admitted, login};
use crate::shared::{Portal, Shared};

/// Serves one connection from its first byte to its last.
pub(crate) async fn serve(shared: Arc<Shared>, arrived: Arrived, portal: Portal) {
    let Arrived { mut stream, shard, login: seat, answers, .. } = arrived;
    let account = shared.budget.account();
    let admitted = shard_runtime::timeout(LOGIN_TIMEOUT, login(&shared, &mut stream, &portal, shard)).await;
    let Some(Ok(Some(mut admitted))) = admitted else { return };
    // Who only asks which targets there are may be anybody, as long as that asks for no secret: it holds no more than those who have
    // not logged in, and goes before hosts do.
    let _seat = admitted.seat.session.is_none().then_some(seat);
    // From here on the connection takes itself out of the session.
    let place = (admitted.seat.session.take(), Arc::clone(&admitted.seat.peer));
    let Admitted { result, stat_sn, first_cmd_sn, .. } = admitted;
    let connection = Connection::new(shared, account, stream, result, place, stat_sn, first_cmd_sn);
    connection.answering(answers).run().await;
}
