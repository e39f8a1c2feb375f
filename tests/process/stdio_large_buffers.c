/* stdio: fread and fwrite larger than its buffer and through large buffers of the program (setvbuf), getline, ungetc, memory
 * streams, and buffers that hold views when stdio gets them. */
#include "process.h"
#include <stdio_ext.h>

int main(void) {
    char *to = fresh(SIZE), *buffer = VIEW(50);
    for (unsigned round = 0; round < 4; round++) {
        FILE *in = fdopen(input_file(SIZE * 2, round), "r+");
        MUST(in);
        if (round == 1) MUST(setvbuf(in, buffer, _IOFBF, SIZE) == 0); /* its buffer holds views */
        if (round == 2) MUST(setvbuf(in, NULL, _IONBF, 0) == 0);
        if (round == 3) MUST(setvbuf(in, malloc(SIZE), _IOFBF, SIZE) == 0);
        char *data = VIEW(60 + round); /* fread into views */
        MUST(fgetc(in) == input_byte(round, 0) && ungetc('u', in) == 'u' && fgetc(in) == 'u');
        MUST(fread(data + 1, 1, SIZE - 1, in) == SIZE - 1);
        MUST(is_input(data + 1, SIZE - 1, round, 1));
        MUST(fread(data, SIZE / 4, 4, in) == 4);
        memcpy(to, data, SIZE);
        EXPECT_INPUT_FROM(to, SIZE, round, SIZE);
        MUST(fgetc(in) == EOF && fseek(in, 100, SEEK_SET) == 0);
        char *v = VIEW(70 + round);
        MUST(fwrite(v, 1, SIZE, in) == SIZE); /* fwrite out of views */
        MUST(fflush(in) == 0 && fseek(in, 0, SEEK_SET) == 0);
        MUST(fread(data, 1, SIZE, in) == SIZE);
        EXPECT_INPUT(data, 100, round);
        EXPECT_INPUT(data + 100, SIZE - 100, 70 + round);
        EXPECT_INPUT(v, SIZE, 70 + round);
        fclose(in);
    }
    /* Lines of 100 KB. */
    FILE *lines = tmpfile();
    char *v = VIEW(80);
    for (size_t i = 0; i < SIZE; i++)
        if (v[i] == '\n' || v[i] == 0) v[i] = ' ';
    for (int i = 0; i < 4; i++) MUST(fwrite(v + i, 1, 100000, lines) == 100000 && fputc('\n', lines) == '\n');
    rewind(lines);
    char *line = NULL;
    size_t room = 0;
    for (int i = 0; i < 4; i++) {
        MUST(getline(&line, &room, lines) == 100001 && memcmp(line, v + i, 100000) == 0);
        show("line", line, 100001);
    }
    rewind(lines);
    MUST(fgets(to, 100002, lines) == to && memcmp(to, v, 100000) == 0);
    fclose(lines);
    /* Memory streams. */
    char *made = NULL, *w = VIEW(81);
    size_t n = 0;
    FILE *stream = open_memstream(&made, &n);
    MUST(fwrite(w, 1, SIZE, stream) == SIZE && fwrite(w, 1, SIZE, stream) == SIZE && fclose(stream) == 0 && n == 2 * SIZE);
    EXPECT_INPUT(made + SIZE, SIZE, 81);
    char *x = VIEW(82);
    stream = fmemopen(x, SIZE, "r+");
    MUST(fread(to, 1, SIZE, stream) == SIZE);
    EXPECT_INPUT(to, SIZE, 82);
    fclose(stream);
    /* printf of a long string, to a file. */
    v[99999] = 0;
    stream = tmpfile();
    MUST(fprintf(stream, "%s|%s", v, v) == 2 * 99999 + 1);
    rewind(stream);
    MUST(fread(to, 1, 99999, stream) == 99999 && memcmp(to, v, 99999) == 0);
    free(made);
    free(line);
    return finish();
}
