#include "runtime/base/printable_text.h"

#include "gtest/gtest.h"

namespace weir {
namespace {

using Lines = PrintableText::Lines;

std::string Kept(const std::string& text) { return Printable(text, Lines::kKept); }

TEST(PrintableTextTest, TextOfPeopleStaysAsItIs) {
  for (const char* text : {"", "plain", "tab\tand\nlines\n", "naïve Größe 模型 𝕎", "\xc2\xa0"})
    EXPECT_EQ(Kept(text), text);
}

TEST(PrintableTextTest, ControlCharactersAreEscaped) {
  EXPECT_EQ(Kept("\x1b[2J\x1b]0;title\x07"), "\\x1b[2J\\x1b]0;title\\x07");
  EXPECT_EQ(Kept("over\rwritten\b\x7f"), "over\\x0dwritten\\x08\\x7f");
  EXPECT_EQ(Kept(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(Kept("\xc2\x9b"
                 "31m"),
            "\\xc2\\x9b31m")
      << "U+009B begins a sequence as ESC [ does";
}

TEST(PrintableTextTest, WhatSteersTheDirectionOfTextIsEscaped) {
  EXPECT_EQ(Kept("a\u202eb"), "a\\xe2\\x80\\xaeb");
  EXPECT_EQ(Kept("\u2066\u2028\u200f\ufeff"),
            "\\xe2\\x81\\xa6\\xe2\\x80\\xa8\\xe2\\x80\\x8f\\xef\\xbb\\xbf");
}

TEST(PrintableTextTest, BytesThatAreNoTextAreEscaped) {
  EXPECT_EQ(Kept("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(Kept("a\xc3"), "a\\xc3") << "half a character at the end";
  EXPECT_EQ(Kept("\xc0\x9b"), "\\xc0\\x9b") << "overlong";
  EXPECT_EQ(Kept("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(Kept("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond Unicode";
}

TEST(PrintableTextTest, LinesAreEscapedWhereTextIsOneLine) {
  EXPECT_EQ(Printable("a\nb\t", Lines::kEscaped), "a\\x0ab\\x09");
}

TEST(PrintableTextTest, PiecesMayEndWithinACharacter) {
  const std::string text = "a模\x1b𝕎\xffö\xe6\x1b\xf0\x9f";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    PrintableText printable(Lines::kKept);
    std::string out;
    printable.Add(text.substr(0, cut), &out);
    printable.Add(text.substr(cut), &out);
    printable.End(&out);
    EXPECT_EQ(out, Kept(text)) << cut;
  }
}

}  // namespace
}  // namespace weir
