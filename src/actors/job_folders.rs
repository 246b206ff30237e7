//! The folders of jobs below `data_dir/jobs`, one for each job that has output files.
//!
//! The folder `jobs` belongs to one home, whose site stands in the file `.home` in it: ids of another home mean other
//! jobs. A folder is removed with all that is in it when the clean-up of its job says so, or the job is gone.

use std::io;
use std::path::{Path, PathBuf};

use tokio::fs;
use uuid::Uuid;

/// The file that says whose folders these are.
const MARK: &str = ".home";

/// Makes the folder of a job, for the owner of the process alone.
///
/// # Errors
/// Why there is none, for the person whose task it is.
pub(super) async fn prepare(data_dir: &Path, home: Uuid, job: i64) -> Result<PathBuf, String> {
    let jobs = data_dir.join("jobs");
    let told = |path: &Path, e: io::Error| format!("cannot make the folder {}: {e}", path.display());
    make(&jobs).await.map_err(|e| told(&jobs, e))?;
    if !is_of(&jobs, home).await.map_err(|e| told(&jobs, e))? {
        return Err(format!(
            "{} belongs to the jobs of another home database: give this service a data_dir of its own",
            jobs.display()
        ));
    }
    let folder = jobs.join(job.to_string());
    make(&folder).await.map_err(|e| told(&folder, e))?;
    Ok(folder)
}

/// The jobs that have a folder here.
///
/// # Errors
/// When they cannot be read.
pub(super) async fn all(data_dir: &Path) -> io::Result<Vec<i64>> {
    let jobs = data_dir.join("jobs");
    let mut found = match fs::read_dir(&jobs).await {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found?,
    };
    let mut ids = Vec::new();
    while let Some(entry) = found.next_entry().await? {
        ids.extend(entry.file_name().to_str().and_then(|name| name.parse::<i64>().ok()));
    }
    Ok(ids)
}

/// Removes the folder of a job.
///
/// # Errors
/// When it cannot be removed; one that is not there is no error.
pub(super) async fn remove(data_dir: &Path, job: i64) -> io::Result<()> {
    match fs::remove_dir_all(data_dir.join("jobs").join(job.to_string())).await {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Makes a folder, and its parents; one that is there must be a folder, and not lead elsewhere.
async fn make(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).await?;
    if fs::symlink_metadata(folder).await?.is_dir() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::NotADirectory, "it is a symbolic link"))
}

/// Are the folders here those of that home's jobs?
///
/// # Errors
/// When it cannot be read whose they are.
pub(super) async fn are_of(data_dir: &Path, home: Uuid) -> io::Result<bool> {
    is_of(&data_dir.join("jobs"), home).await
}

/// Are these the folders of that home? They are from now on if they were nobody's.
async fn is_of(jobs: &Path, home: Uuid) -> io::Result<bool> {
    let mark = jobs.join(MARK);
    match fs::read_to_string(&mark).await {
        Ok(text) => Ok(text.trim() == home.to_string()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            fs::write(&mark, home.to_string()).await?;
            Ok(true)
        }
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn folders_are_of_one_home_and_lead_nowhere_else() {
        let data = tempfile::tempdir().unwrap();
        let (ours, theirs) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert!(all(data.path()).await.unwrap().is_empty());
        let folder = prepare(data.path(), ours, 7).await.unwrap();
        assert_eq!(folder, data.path().join("jobs/7"));
        assert_eq!(all(data.path()).await.unwrap(), [7]);
        assert!(prepare(data.path(), theirs, 8).await.unwrap_err().contains("another home"));
        assert!(!are_of(data.path(), theirs).await.unwrap());
        std::os::unix::fs::symlink("/tmp", data.path().join("jobs/9")).unwrap();
        assert!(prepare(data.path(), ours, 9).await.unwrap_err().contains("symbolic link"));
        remove(data.path(), 7).await.unwrap();
        remove(data.path(), 7).await.unwrap();
        assert!(!folder.exists());
    }
}
