//! A file that is read again: [`FileSource`].
//!
//! A source is read whole for each reload and compared with the last bytes. A source with equal bytes is not compiled again.

use std::path::PathBuf;

use crate::error::RulesError;
use crate::file::RulesFile;
use crate::read;
use crate::variables::Variables;

/// A file that is read again.
pub(crate) struct FileSource {
    pub path: PathBuf,
    pub variables: Variables,
    /// The names of keys that the program finds itself.
    pub given_keys: Vec<String>,
}

/// The text of the file, and the other files that it names.
pub(crate) struct FileContents {
    pub text: String,
    pub files: Vec<(PathBuf, Vec<u8>)>,
}

impl FileSource {
    /// The text and the file, if anything differs from the known contents.
    pub(crate) fn read(
        &self,
        known: Option<&FileContents>,
    ) -> Result<Option<(String, RulesFile)>, RulesError> {
        let text = read::text(&self.path).map_err(|problem| self.error(&problem))?;
        let is_same = |(path, bytes): &(PathBuf, Vec<u8>)| {
            read::bytes(path, bytes.len()).is_ok_and(|now| now == *bytes)
        };
        if known.is_some_and(|known| known.text == text && known.files.iter().all(is_same)) {
            return Ok(None);
        }
        let name = self.path.display().to_string();
        let file = RulesFile::parse_in(&name, &text, self.path.parent(), &self.variables, &self.given_keys)?;
        Ok(Some((text, file)))
    }

    pub(crate) fn error(&self, problem: &str) -> RulesError {
        RulesError::of_file(&self.path.display().to_string(), problem)
    }
}
