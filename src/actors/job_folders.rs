//! The folders of jobs below `data_dir/jobs`, one for each job that has output files.
//!
//! The folder `jobs` belongs to one home, whose site stands in the file `.home` in it: ids of another home mean other
//! jobs. A folder is removed with all that is in it when the clean-up of its job says so, or the job is gone. Only the leader
//! writes and removes, and both in one thread.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};

use tokio::fs;
use uuid::Uuid;

/// The file that says whose folders these are.
const MARK: &str = ".home";
/// What the name of a folder that is being removed begins with.
const DOOMED: &str = ".doomed-";

/// The folders of jobs.
#[derive(Debug)]
pub(super) struct JobFolders {
    jobs: PathBuf,
    prepared: Cell<u64>,
}

/// What was prepared up to the moment when it was asked which folders are to be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment(u64);

impl JobFolders {
    /// Those below this data folder.
    pub(super) fn new(data_dir: &Path) -> JobFolders {
        JobFolders { jobs: data_dir.join("jobs"), prepared: Cell::new(0) }
    }

    /// Makes the folder of a job, for the owner of the process alone.
    ///
    /// # Errors
    /// Why there is none, for the person whose task it is.
    pub(super) async fn prepare(&self, home: Uuid, job: i64) -> Result<PathBuf, String> {
        self.prepared.set(self.prepared.get() + 1);
        let told = |path: &Path, e: io::Error| format!("cannot make the folder {}: {e}", path.display());
        make(&self.jobs).await.map_err(|e| told(&self.jobs, e))?;
        if !self.are_of(home).await.map_err(|e| told(&self.jobs, e))? {
            return Err(format!(
                "{} belongs to the jobs of another home database: give this service a data_dir of its own",
                self.jobs.display()
            ));
        }
        let folder = self.jobs.join(job.to_string());
        make(&folder).await.map_err(|e| told(&folder, e))?;
        Ok(folder)
    }

    /// To be taken before it is asked which folders are to be removed.
    pub(super) fn moment(&self) -> Moment {
        Moment(self.prepared.get())
    }

    /// The jobs that have a folder here.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(super) async fn all(&self) -> io::Result<Vec<i64>> {
        let mut found = match fs::read_dir(&self.jobs).await {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            found => found?,
        };
        let mut ids = Vec::new();
        while let Some(entry) = found.next_entry().await? {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.starts_with(DOOMED) {
                // A removal that was cut short.
                fs::remove_dir_all(entry.path()).await?;
            }
            ids.extend(name.parse::<i64>().ok());
        }
        Ok(ids)
    }

    /// Are the folders here those of that home's jobs? They are from now on if they were nobody's.
    ///
    /// # Errors
    /// When it cannot be read whose they are.
    pub(super) async fn are_of(&self, home: Uuid) -> io::Result<bool> {
        let mark = self.jobs.join(MARK);
        match fs::read_to_string(&mark).await {
            Ok(text) => Ok(text.trim() == home.to_string()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                fs::write(&mark, home.to_string()).await?;
                Ok(true)
            }
            Err(e) => Err(e),
        }
    }

    /// Removes the folder of a job, unless one was prepared since that moment: it may be this one, of a job that was retried
    /// meanwhile. Says whether it is gone.
    ///
    /// # Errors
    /// When it cannot be removed; one that is not there is no error.
    pub(super) async fn remove(&self, job: i64, since: Moment) -> io::Result<bool> {
        if self.moment() != since {
            return Ok(false);
        }
        // Nothing is awaited between the look and this.
        let doomed = self.jobs.join(format!("{DOOMED}{job}"));
        match std::fs::rename(self.jobs.join(job.to_string()), &doomed) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
            renamed => renamed?,
        }
        fs::remove_dir_all(doomed).await?;
        Ok(true)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn folders_are_of_one_home_and_lead_nowhere_else() {
        let data = tempfile::tempdir().unwrap();
        let folders = JobFolders::new(data.path());
        let (ours, theirs) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert!(folders.all().await.unwrap().is_empty());
        let folder = folders.prepare(ours, 7).await.unwrap();
        assert_eq!(folder, data.path().join("jobs/7"));
        assert_eq!(folders.all().await.unwrap(), [7]);
        assert!(folders.prepare(theirs, 8).await.unwrap_err().contains("another home"));
        assert!(!folders.are_of(theirs).await.unwrap());
        std::os::unix::fs::symlink("/tmp", data.path().join("jobs/9")).unwrap();
        assert!(folders.prepare(ours, 9).await.unwrap_err().contains("symbolic link"));
    }

    #[tokio::test]
    async fn a_folder_that_may_be_in_use_again_is_not_removed() {
        let data = tempfile::tempdir().unwrap();
        let folders = JobFolders::new(data.path());
        let home = Uuid::from_u128(1);
        let folder = folders.prepare(home, 7).await.unwrap();
        let before = folders.moment();
        folders.prepare(home, 7).await.unwrap();
        assert!(!folders.remove(7, before).await.unwrap());
        assert!(folder.exists());
        for _ in 0..2 {
            assert!(folders.remove(7, folders.moment()).await.unwrap());
            assert!(!folder.exists());
        }
        // What a removal that was cut short left goes with the next look.
        std::fs::create_dir_all(data.path().join("jobs/.doomed-8/x")).unwrap();
        assert!(folders.all().await.unwrap().is_empty());
        assert!(!data.path().join("jobs/.doomed-8").exists());
    }
}
