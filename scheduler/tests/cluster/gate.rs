//! `wait_at(gate, value)`: a SQL function that returns its value once the gate is open, so that a test decides when a
//! task may go on.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, LazyLock, Mutex};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

static OPEN: LazyLock<(Mutex<HashMap<String, bool>>, Condvar)> = LazyLock::new(Default::default);

/// Lets everyone pass who waits at the gate, or comes to it later.
pub fn open(gate: &str) {
    OPEN.0.lock().unwrap().insert(gate.to_owned(), true);
    OPEN.1.notify_all();
}

fn pass(gate: &str) {
    let open = OPEN.0.lock().unwrap();
    drop(OPEN.1.wait_while(open, |open| !open.get(gate).copied().unwrap_or(false)).unwrap());
}

/// Makes the function known to a scheduler or an executor.
pub fn register(mut state: SessionState) -> SessionState {
    use datafusion::execution::FunctionRegistry;
    state.register_udf(Arc::new(function())).unwrap();
    state
}

/// The function itself.
pub fn function() -> ScalarUDF {
    ScalarUDF::from(WaitAt::new())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WaitAt {
    signature: Signature,
}

impl WaitAt {
    fn new() -> Self {
        let signature = TypeSignature::Exact(vec![DataType::Utf8, DataType::Int64]);
        // Volatile, so that no planner calls it.
        Self { signature: Signature::new(signature, Volatility::Volatile) }
    }
}

impl ScalarUDFImpl for WaitAt {
    fn name(&self) -> &str {
        "wait_at"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match &args.args[..] {
            [ColumnarValue::Scalar(ScalarValue::Utf8(Some(gate))), value] => {
                pass(gate);
                Ok(value.clone())
            }
            other => exec_err!("wait_at takes the name of a gate and a number, got {other:?}"),
        }
    }
}

#[tokio::test]
async fn an_open_gate_lets_pass() {
    use datafusion::prelude::SessionContext;
    open("open");
    let session = SessionContext::new_with_state(
        crate::harness::session_state(ballista_core::object_store::session_config_with_s3_support()).unwrap(),
    );
    crate::harness::run(&session, "select wait_at('open', 1)").await.unwrap();
}
