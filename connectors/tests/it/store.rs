//! Local folders as object store and as input.

use std::io::Read;
use std::os::unix::fs::symlink;
use std::process::Command;

use bytes::Bytes;
use prorata_connectors::store::{Store, open_input};
use prorata_testkit::conformance;
use prorata_worker::ports::{ErrorKind, Input, ObjectStore, PutOutcome};

#[tokio::test]
async fn a_local_folder_keeps_the_promises_of_an_object_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("lake").to_str().unwrap()).unwrap();
    store.probe().await.unwrap();
    conformance::store::object_store(&store).await.unwrap();
}

#[tokio::test]
async fn a_path_and_its_url_are_one_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a lake");
    let by_path = Store::open(path.to_str().unwrap()).unwrap();
    by_path.put_if_absent("x/y=1/z.json", Bytes::from_static(b"z")).await.unwrap();
    assert!(path.join("x/y=1/z.json").is_file(), "names are those of the file system");
    let by_url = Store::open(&format!("file://{}", path.display()).replace(' ', "%20")).unwrap();
    assert_eq!(by_url.get("x/y=1/z.json").await.unwrap(), Some(Bytes::from_static(b"z")));
    let dotted = Store::open(path.join("../a lake/./").to_str().unwrap()).unwrap();
    assert_eq!(dotted.list("x/").await.unwrap(), by_path.list("").await.unwrap());
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_an_error_that_names_the_object() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "in the way").unwrap();
    let store = Store::open(file.join("lake").to_str().unwrap()).unwrap();
    let error = store.put_if_absent("root.json", Bytes::from_static(b"{}")).await.unwrap_err();
    assert!(error.to_string().starts_with("write 'root.json': "), "{error}");
    assert_eq!(error.kind, ErrorKind::Missing, "a file stands where a folder must be");
    assert!(error.source.source().is_some(), "the store's own error is kept");
}

#[tokio::test]
async fn a_half_written_object_of_a_killed_process_is_nobodys() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("state")).unwrap();
    std::fs::write(folder.path().join("state/c.json#1"), "half").unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    assert_eq!(store.list("state/").await.unwrap(), []);
    assert_eq!(
        store.put_if_absent("state/c.json", Bytes::from_static(b"whole")).await.unwrap(),
        PutOutcome::Created
    );
    assert_eq!(store.get("state/c.json").await.unwrap(), Some(Bytes::from_static(b"whole")));
}

#[test]
fn invalid_locations_are_refused_with_an_example() {
    for (location, part) in [
        ("", "the location is empty"),
        ("memory:///", "keeps nothing after the command ends"),
        ("ftp://host/folder", "s3://bucket/folder"),
        ("hdfs://host/folder", "s3://bucket/folder"),
    ] {
        let error = Store::open(location).unwrap_err().to_string();
        assert!(error.contains(part), "{location}: {error}");
    }
    let error = open_input("no/such/folder").err().unwrap().to_string();
    assert_eq!(error, "--events 'no/such/folder' does not exist; name an existing folder");
}

#[tokio::test]
async fn an_input_lists_files_in_every_layout_in_order_and_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b.avro", "date=2026-11-20/hour=13/topic+0+0000000017.avro", "a/ü %20#.avro", "README.md"] {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, name).unwrap();
    }
    let input = open_input(folder.path().to_str().unwrap()).unwrap();
    let files = input.list().await.unwrap();
    let names: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(
        names,
        ["README.md", "a/ü %20#.avro", "b.avro", "date=2026-11-20/hour=13/topic+0+0000000017.avro"]
    );
    for file in &files {
        let mut text = String::new();
        input.open(file).await.unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, file.path);
        assert_eq!(file.bytes, text.len() as u64);
    }
    let one = open_input(folder.path().join("b.avro").to_str().unwrap()).unwrap();
    let listed = one.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    let mut text = String::new();
    one.open(&listed[0]).await.unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "b.avro");
}

/// Opens a file of the input by its name. Returns its content or the error.
async fn opened(input: &dyn Input, name: &str) -> Result<String, String> {
    let files = input.list().await.unwrap();
    let file = files.iter().find(|file| file.path == name).unwrap();
    let mut text = String::new();
    let mut opened = input.open(file).await.map_err(|error| error.source.to_string())?;
    opened.read_to_string(&mut text).unwrap();
    Ok(text)
}

#[tokio::test]
async fn an_input_holds_regular_files_of_its_folder_and_refuses_others() {
    let room = tempfile::tempdir().unwrap();
    let [folder, elsewhere] = ["events", "elsewhere"].map(|name| room.path().join(name));
    for folder in [&folder.join("inner"), &elsewhere] {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("a.avro"), "a").unwrap();
    }
    for (to, link) in [
        ("inner/a.avro", "within.avro"),
        ("../elsewhere/a.avro", "out.avro"),
        ("/dev/zero", "device.avro"),
        ("gone", "gone.avro"),
        ("../elsewhere", "out"),
        (".", "circle"),
        ("..", "inner/circle"),
    ] {
        symlink(to, folder.join(link)).unwrap();
    }
    let pipe = folder.join("pipe.avro");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let input = open_input(folder.to_str().unwrap()).unwrap();
    let files = input.list().await.unwrap();
    let names: Vec<&str> = files.iter().map(|file| &*file.path).collect();
    let expected =
        ["device.avro", "gone.avro", "inner/a.avro", "out.avro", "out/*.avro", "pipe.avro", "within.avro"];
    assert_eq!(names, expected, "no circle is gone round");
    for name in ["inner/a.avro", "within.avro"] {
        assert_eq!(opened(&*input, name).await, Ok("a".to_owned()), "{name}");
    }
    for (name, why) in [
        ("device.avro", "it is a link that leads out of --events, to /dev/zero"),
        ("out.avro", "it is a link that leads out of --events, to "),
        ("out/*.avro", "it is a link that leads out of --events, to "),
        ("pipe.avro", "it is not a regular file"),
        ("gone.avro", "No such file"),
    ] {
        let error = opened(&*input, name).await.unwrap_err();
        assert!(error.contains(why), "{name}: {error}");
    }
    for special in [pipe.to_str().unwrap(), "/dev/zero"] {
        let error = open_input(special).err().unwrap().to_string();
        assert_eq!(error, format!("--events '{special}' is neither a folder nor a regular file"));
    }
}
