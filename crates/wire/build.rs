//! Compiles every file under `proto/` to Rust messages and to one descriptor set, without an installed protoc.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());

    let mut files = Vec::new();
    collect(&root, &mut files)?;
    // Directory order is up to the file system; the descriptor set must not depend on it.
    files.sort();

    let mut compiler = protox::Compiler::new([&root])?;
    compiler.include_imports(true).open_files(&files)?;

    // Comments stay out of what is embedded: reflection clients need the shape only.
    let descriptors = PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin");
    fs::write(descriptors, compiler.encode_file_descriptor_set())?;

    compiler.include_source_info(true);
    prost_build::Config::new()
        .bytes(["."])
        .btree_map(["."])
        // Only the first entry of a session has it, and every entry would be moved about at its size.
        .boxed(".macp.history.v1.Entry.binding")
        .include_file("packages.rs")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    Ok(())
}
