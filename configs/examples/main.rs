//! A host in Rust that brings its own attention: hidden states through the experts of one layer.
//!
//!     rustc -L LIBDIR main.rs -o rust_host
//!     rust_host MODEL
//!
//! The structs follow colibri.h, field by field; each begins with its own size.
use std::ffi::{c_char, c_void, CStr, CString};
use std::mem::size_of;
use std::ptr::{null, null_mut};

const ABI_VERSION: u32 = 1;
const OK: i32 = 0;
const PURPOSE_BLOCKS: i32 = 1;

#[repr(C)]
struct Error {
    struct_size: u64,
    code: i32,
    reserved: i32,
    offset: u64,
    message: [c_char; 4096],
    stage: [c_char; 64],
    file: [c_char; 1024],
}

#[repr(C)]
struct ModelSpec {
    struct_size: u64,
    num_layers: u32,
    num_moe_layers: u32,
    num_experts: u32,
    num_experts_per_token: u32,
    hidden_size: u32,
    intermediate_size: u32,
    vocab_size: u32,
    max_seq_len: u32,
    has_tokenizer: u32,
    reserved: u32,
    dense_bytes: u64,
    expert_bytes: u64,
    record_bytes: u64,
    family: [c_char; 32],
    weight_dtype: [c_char; 16],
}

#[repr(C)]
struct Config {
    struct_size: u64,
    purpose: i32,
    threads: u32,
    static_bytes: u64,
    dynamic_bytes: u64,
    scratch_bytes: u64,
    expert_slots: u64,
    max_rows: u32,
    wave_rows: u32,
    pipeline: *const c_char,
    state_dir: *const c_char,
    kernels: *const c_char,
    settings: *const *const c_char,
    num_settings: u64,
    allocator: [*mut c_void; 3], // user, allocate, release
    log: *mut c_void,
    log_user: *mut c_void,
}

#[repr(C)]
struct InferInput {
    struct_size: u64,
    hidden_states: *const f32, // [seq_len, hidden_size]
    layer: u32,
    seq_len: u32,
    hidden_size: u32,
    reserved: u32,
}

#[repr(C)]
struct InferOutput {
    struct_size: u64,
    hidden_states: *mut f32, // [seq_len, hidden_size]
    hidden_capacity: u64,
    expert_ids: *mut u32, // [seq_len, num_experts_per_token]
    expert_weights: *mut f32,
    expert_capacity: u64,
    latency_ms: f64,
    error_code: i32,
    reserved: i32,
}

#[link(name = "colibri")]
extern "C" {
    fn colibri_abi_version() -> u32;
    fn colibri_error_init(error: *mut Error, struct_size: u64) -> i32;
    fn colibri_config_init(config: *mut Config, struct_size: u64) -> i32;
    fn colibri_model_spec_load(path: *const c_char, spec: *mut ModelSpec, error: *mut Error) -> i32;
    fn colibri_model_spec_moe_layers(
        path: *const c_char, layers: *mut u32, capacity: u64, count: *mut u64, error: *mut Error,
    ) -> i32;
    fn colibri_model_create(
        path: *const c_char, config: *const Config, model: *mut *mut c_void, error: *mut Error,
    ) -> i32;
    fn colibri_model_destroy(model: *mut c_void, error: *mut Error) -> i32;
    fn colibri_infer(
        model: *mut c_void, input: *const InferInput, output: *mut InferOutput, error: *mut Error,
    ) -> i32;
}

/// Calls one function of the library; what fails is told in its own words.
fn call(function: impl FnOnce(&mut Error) -> i32) -> Result<(), String> {
    let mut error: Error = unsafe { std::mem::zeroed() };
    unsafe { colibri_error_init(&mut error, size_of::<Error>() as u64) };
    match function(&mut error) {
        OK => Ok(()),
        _ => Err(unsafe { CStr::from_ptr(error.message.as_ptr()) }.to_string_lossy().into_owned()),
    }
}

/// An open model, closed when it goes.
struct Model(*mut c_void);

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { colibri_model_destroy(self.0, null_mut()) };
    }
}

fn open(path: &CStr) -> Result<Model, String> {
    let mut model = Model(null_mut());
    unsafe {
        let mut config: Config = std::mem::zeroed();
        colibri_config_init(&mut config, size_of::<Config>() as u64);
        config.purpose = PURPOSE_BLOCKS;
        call(|error| colibri_model_create(path.as_ptr(), &config, &mut model.0, error))?;
    }
    Ok(model)
}

fn run(path: &CStr) -> Result<(), String> {
    if unsafe { colibri_abi_version() } != ABI_VERSION {
        return Err("the library is of another version than this program".into());
    }
    let mut spec: ModelSpec = unsafe { std::mem::zeroed() };
    spec.struct_size = size_of::<ModelSpec>() as u64;
    call(|error| unsafe { colibri_model_spec_load(path.as_ptr(), &mut spec, error) })?;
    let mut layers = vec![0u32; spec.num_moe_layers as usize];
    let mut count = 0;
    let capacity = layers.len() as u64;
    call(|error| unsafe {
        colibri_model_spec_moe_layers(path.as_ptr(), layers.as_mut_ptr(), capacity, &mut count, error)
    })?;
    let model = open(path)?;

    let (rows, hidden) = (3usize, spec.hidden_size as usize);
    let states: Vec<f32> = (0..rows * hidden).map(|i| (i as f32).sin()).collect(); // [rows, hidden]
    let mut added = vec![0f32; rows * hidden]; // [rows, hidden]
    let mut experts = vec![0u32; rows * spec.num_experts_per_token as usize];
    for layer in layers {
        let input = InferInput {
            struct_size: size_of::<InferInput>() as u64,
            hidden_states: states.as_ptr(),
            layer,
            seq_len: rows as u32,
            hidden_size: spec.hidden_size,
            reserved: 0,
        };
        let mut output = InferOutput {
            struct_size: size_of::<InferOutput>() as u64,
            hidden_states: added.as_mut_ptr(),
            hidden_capacity: added.len() as u64,
            expert_ids: experts.as_mut_ptr(),
            expert_weights: null::<f32>() as *mut f32,
            expert_capacity: experts.len() as u64,
            latency_ms: 0.0,
            error_code: 0,
            reserved: 0,
        };
        call(|error| unsafe { colibri_infer(model.0, &input, &mut output, error) })?;
        let norm = added.iter().map(|x| x * x).sum::<f32>().sqrt();
        println!("layer {layer}: added {norm:.3} in {:.2} ms, experts {experts:?}", output.latency_ms);
    }
    Ok(())
}

fn main() {
    let Some(path) = std::env::args().nth(1).and_then(|path| CString::new(path).ok()) else {
        eprintln!("usage: rust_host MODEL");
        std::process::exit(2);
    };
    if let Err(message) = run(&path) {
        eprintln!("{message}");
        std::process::exit(1);
    }
}
