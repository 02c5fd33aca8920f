// The Java context: the JDK's own JShell, driven over a socket that is this program's standard input.
//
// A frame is a 32-bit big-endian length, one byte of kind, and the payload.

import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import jdk.jshell.*;
import jdk.jshell.execution.LocalExecutionControlProvider;

public class JavaRunner {
    static final int CONTROL = 0, STDOUT = 1, STDERR = 2, RESULT = 4;
    static final int TEXT_CHARS_MAX = 64 * 1024;
    static final OutputStream link = new FileOutputStream(FileDescriptor.in);
    static int count = 0;
    static volatile boolean interrupted = false;

    static synchronized void send(int kind, byte[] payload) {
        try {
            byte[] whole = new byte[5 + payload.length];
            for (int i = 0; i < 4; i++) whole[i] = (byte) (payload.length >>> (24 - 8 * i));
            whole[4] = (byte) kind;
            System.arraycopy(payload, 0, whole, 5, payload.length);
            link.write(whole);
        } catch (IOException gone) {
            Runtime.getRuntime().halt(1);
        }
    }

    static void sendControl(String json) {
        send(CONTROL, json.getBytes(StandardCharsets.UTF_8));
    }

    static String quote(String text) {
        if (text == null) return "\"\"";
        if (text.length() > TEXT_CHARS_MAX) text = text.substring(0, TEXT_CHARS_MAX) + "\n[cut]";
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') out.append('\\').append(c);
            else if (c < 32 || c > 126) out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        return out.append('"').toString();
    }

    static class Stream extends OutputStream {
        final int kind;
        Stream(int kind) { this.kind = kind; }
        @Override public void write(int b) { write(new byte[] {(byte) b}, 0, 1); }
        @Override public void write(byte[] data, int at, int length) {
            for (int start = at; start < at + length; start += 1 << 19)
                send(kind, Arrays.copyOfRange(data, start, Math.min(at + length, start + (1 << 19))));
        }
    }

    static void fail(String name, String value, String trace) {
        sendControl("{\"type\":\"error\",\"name\":" + quote(name) + ",\"value\":" + quote(value)
            + ",\"traceback\":" + quote(trace) + "}");
    }

    static boolean failed(JShell shell, SnippetEvent event) {
        if (event.exception() instanceof EvalException thrown) {
            StringBuilder trace = new StringBuilder(thrown.getExceptionClassName() + ": " + thrown.getMessage());
            for (StackTraceElement frame : thrown.getStackTrace()) trace.append("\n    at ").append(frame);
            String name = thrown.getExceptionClassName();
            fail(name.substring(name.lastIndexOf('.') + 1), thrown.getMessage(), trace.toString());
            return true;
        }
        if (event.exception() != null) {
            fail(event.exception().getClass().getSimpleName(), event.exception().getMessage(), "");
            return true;
        }
        if (event.status() != Snippet.Status.REJECTED) return false;
        StringBuilder words = new StringBuilder();
        shell.diagnostics(event.snippet()).forEach(d -> words.append(d.getMessage(Locale.ENGLISH)).append('\n'));
        fail("CompilationError", words.toString().strip(), event.snippet().source() + "\n" + words);
        return true;
    }

    static int run(JShell shell, String code) {
        interrupted = false;
        SourceCodeAnalysis analysis = shell.sourceCodeAnalysis();
        String value = null;
        for (String rest = code; !rest.isBlank() && !interrupted; ) {
            SourceCodeAnalysis.CompletionInfo next = analysis.analyzeCompletion(rest);
            if (!next.completeness().isComplete() && next.remaining().isBlank()) {
                next = analysis.analyzeCompletion(rest + ";");
            }
            String source = next.source() == null ? rest : next.source();
            value = null;
            for (SnippetEvent event : shell.eval(source)) {
                if (failed(shell, event)) return 1;
                boolean isExpression = event.snippet().kind() == Snippet.Kind.EXPRESSION
                    || event.snippet().subKind() == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND;
                if (event.causeSnippet() == null && isExpression && event.value() != null) value = event.value();
            }
            rest = next.source() == null ? "" : next.remaining();
        }
        if (interrupted) {
            fail("KeyboardInterrupt", "the code was interrupted", "");
            return 1;
        }
        if (value != null && !value.isEmpty()) {
            String json = "{\"main\":true,\"data\":{\"text/plain\":" + quote(value) + "}}";
            send(RESULT, json.getBytes(StandardCharsets.UTF_8));
        }
        return 0;
    }

    // The one field that matters, from JSON that the guest wrote: only escapes that it uses.
    static String codeOf(String json) {
        int at = json.indexOf("\"code\":\"") + 8;
        StringBuilder out = new StringBuilder();
        for (int i = at; json.charAt(i) != '"'; i++) {
            char c = json.charAt(i);
            if (c != '\\') { out.append(c); continue; }
            char e = json.charAt(++i);
            switch (e) {
                case 'n' -> out.append('\n');
                case 't' -> out.append('\t');
                case 'r' -> out.append('\r');
                case 'b' -> out.append('\b');
                case 'f' -> out.append('\f');
                case 'u' -> { out.append((char) Integer.parseInt(json.substring(i + 1, i + 5), 16)); i += 4; }
                default -> out.append(e);
            }
        }
        return out.toString();
    }

    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(FileDescriptor.in)));
        System.setOut(new PrintStream(new Stream(STDOUT), true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(new Stream(STDERR), true, StandardCharsets.UTF_8));
        System.setIn(InputStream.nullInputStream());
        JShell shell = JShell.builder().executionEngine(new LocalExecutionControlProvider(), Map.of()).build();
        for (String name : List.of("java.io.*", "java.math.*", "java.util.*", "java.util.function.*", "java.util.stream.*"))
            shell.eval("import " + name + ";");
        sun.misc.Signal.handle(new sun.misc.Signal("INT"), signal -> { interrupted = true; shell.stop(); });
        sendControl("{\"type\":\"ready\"}");
        while (true) {
            int length;
            try {
                length = in.readInt();
            } catch (EOFException gone) {
                Runtime.getRuntime().halt(0);
                return;
            }
            in.readByte();
            byte[] body = in.readNBytes(length);
            String json = new String(body, StandardCharsets.UTF_8);
            if (!json.contains("\"do\":\"run\"")) continue;
            int exitCode = run(shell, codeOf(json));
            sendControl("{\"type\":\"done\",\"count\":" + (++count) + ",\"exit_code\":" + exitCode + "}");
        }
    }
}
