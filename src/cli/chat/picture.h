// Pictures in weft chat: where a line names one, and what stands for them in messages. Pure
// functions, but for reading files.
#ifndef WEFT_CLI_CHAT_PICTURE_H_
#define WEFT_CLI_CHAT_PICTURE_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "answer/asked_picture.h"
#include "base/status.h"

namespace weft::cli {

struct ChatPicture {
  std::string mark;  // stands for it in the conversation's messages; nobody can guess it
  std::string name;  // of its file, for people
  std::shared_ptr<const serve::PictureFile> file;
};

// The file that is all of the line, as terminals paste what is dropped on them: plain, in quotes,
// with escaped spaces, or as a file: URL. Empty if the line is something else, or there is no such
// file, or its name does not end as a picture's does.
std::string PicturePathIn(std::string_view line);

// What follows /image: a file, and perhaps a question about it.
struct ImageArguments {
  std::string path, question;
};
ImageArguments SplitImageArguments(std::string_view text);

StatusOr<ChatPicture> ReadChatPicture(const std::string& path);

// Replaces marks by the pictures' names, for example "[cat.png] What is it?".
std::string WithPictureNames(std::string text, std::span<const ChatPicture> pictures);

// The marks that the text begins with.
std::string LeadingMarks(std::string_view text, std::span<const ChatPicture> pictures);

}  // namespace weft::cli

#endif  // WEFT_CLI_CHAT_PICTURE_H_
