// COLIBRI_API marks what libcolibri.so exports: classes and functions of installed headers that
// are defined in a .cpp file. All else is compiled hidden, inline functions too; interfaces that
// a host implements (Stage, RequestSource ...) are inline as a whole and need no mark, their
// tables are made where they are implemented. tests/install/exported_symbols.txt has the list.
// It lies here because no folder is below this one. The macro is the same for both libraries.
#pragma once

#define COLIBRI_API [[gnu::visibility("default")]]
// Members of a marked class that are nobody's but its own.
#define COLIBRI_HIDDEN [[gnu::visibility("hidden")]]
