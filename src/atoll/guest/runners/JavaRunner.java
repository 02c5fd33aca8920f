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
    static final int STOP_PAUSE_MS = 20;
    static final BlockingQueue<Map<String, Object>> requests = new LinkedBlockingQueue<>();
    static volatile String running = null, newest = null, stopped = null;  // ids of runs

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

    static boolean interrupted() {
        return running != null && running.equals(stopped);
    }

    // A stop finds nothing to stop while a piece of the code is compiled: it is repeated until the run is over.
    static void interrupt(JShell shell, String id) {
        stopped = id;
        Thread stopper = new Thread(() -> {
            while (id.equals(newest)) {
                synchronized (requests) {
                    if (interrupted()) shell.stop();
                }
                try { Thread.sleep(STOP_PAUSE_MS); } catch (InterruptedException never) { return; }
            }
        });
        stopper.setDaemon(true);
        stopper.start();
    }

    static int run(JShell shell, String code) {
        SourceCodeAnalysis analysis = shell.sourceCodeAnalysis();
        String value = null;
        for (String rest = code; !rest.isBlank() && !interrupted(); ) {
            SourceCodeAnalysis.CompletionInfo next = analysis.analyzeCompletion(rest);
            if (!next.completeness().isComplete() && next.remaining().isBlank()) {
                next = analysis.analyzeCompletion(rest + ";");
            }
            String source = next.source() == null ? rest : next.source();
            value = null;
            for (SnippetEvent event : shell.eval(source)) {
                if (!interrupted() && failed(shell, event)) return 1;
                boolean isExpression = event.snippet().kind() == Snippet.Kind.EXPRESSION
                    || event.snippet().subKind() == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND;
                if (event.causeSnippet() == null && isExpression && event.value() != null) value = event.value();
            }
            rest = next.source() == null ? "" : next.remaining();
        }
        if (interrupted()) {
            fail("KeyboardInterrupt", "the code was interrupted", "");
            return 1;
        }
        if (value != null && !value.isEmpty()) {
            String json = "{\"main\":true,\"data\":{\"text/plain\":" + quote(value) + "}}";
            send(RESULT, json.getBytes(StandardCharsets.UTF_8));
        }
        return 0;
    }

    // JSON as the guest writes it: objects, texts and null. Whatever else there were would be of no use here.
    static class Request {
        final String json;
        int at = 0;
        Request(String json) { this.json = json; }

        Object value() {
            switch (json.charAt(at)) {
                case '{': return object();
                case '"': return text();
                default:
                    while (at < json.length() && ",}".indexOf(json.charAt(at)) < 0) at++;
                    return null;
            }
        }

        Map<String, Object> object() {
            Map<String, Object> found = new LinkedHashMap<>();
            at++;
            while (json.charAt(at) != '}') {
                if (json.charAt(at) == ',') at++;
                String name = text();
                at++;  // the colon
                found.put(name, value());
            }
            at++;
            return found;
        }

        String text() {
            StringBuilder out = new StringBuilder();
            for (at++; json.charAt(at) != '"'; at++) {
                char c = json.charAt(at);
                if (c != '\\') { out.append(c); continue; }
                char e = json.charAt(++at);
                switch (e) {
                    case 'n' -> out.append('\n');
                    case 't' -> out.append('\t');
                    case 'r' -> out.append('\r');
                    case 'b' -> out.append('\b');
                    case 'f' -> out.append('\f');
                    case 'u' -> { out.append((char) Integer.parseInt(json.substring(at + 1, at + 5), 16)); at += 4; }
                    default -> out.append(e);
                }
            }
            at++;
            return out.toString();
        }
    }

    // Standard input of one run. Without one, who asks for input is told at once that nobody is there to answer.
    static class Input extends InputStream {
        private InputStream given = null;
        synchronized void give(Object text) {
            given = text == null ? null : new ByteArrayInputStream(text.toString().getBytes(StandardCharsets.UTF_8));
        }
        private InputStream source() throws IOException {
            if (given == null) throw new IOException("input is not possible here: nobody is there to answer");
            return given;
        }
        @Override public synchronized int read() throws IOException { return source().read(); }
        @Override public synchronized int read(byte[] to, int at, int length) throws IOException {
            return source().read(to, at, length);
        }
        @Override public synchronized int available() { return given == null ? 0 : ((ByteArrayInputStream) given).available(); }
    }

    // The JDK shows its environment as a map that cannot be changed. The map below it can, and is what programs that
    // are started from here get, too. It takes two --add-opens.
    @SuppressWarnings("unchecked")
    static Map<String, String> environment() throws ReflectiveOperationException {
        Map<String, String> shown = System.getenv();
        var below = shown.getClass().getDeclaredField("m");
        below.setAccessible(true);
        return (Map<String, String>) below.get(shown);
    }

    @SuppressWarnings("unchecked")
    static Map<String, String> given(Map<String, Object> request, String name) {
        Object found = request.get(name);
        return found == null ? Map.of() : (Map<String, String>) found;
    }

    static int runWith(JShell shell, Map<String, Object> request, Input input) throws ReflectiveOperationException {
        Map<String, String> environment = environment();
        environment.putAll(given(request, "base_env"));
        Map<String, String> before = new HashMap<>();
        for (String name : given(request, "env").keySet()) before.put(name, environment.get(name));
        environment.putAll(given(request, "env"));
        input.give(request.get("stdin"));
        try {
            return run(shell, (String) request.get("code"));
        } finally {
            input.give(null);
            before.forEach((name, value) -> {
                if (value == null) environment.remove(name);
                else environment.put(name, value);
            });
        }
    }

    // What the guest says, while code runs: an interrupt names its run, so that it hits no other.
    static void listen(JShell shell, DataInputStream in) {
        try {
            while (true) {
                int length = in.readInt();
                in.readByte();
                String json = new String(in.readNBytes(length), StandardCharsets.UTF_8);
                Map<String, Object> request = new Request(json).object();
                if ("run".equals(request.get("do"))) {
                    newest = (String) request.get("id");
                    requests.add(request);
                } else if ("interrupt".equals(request.get("do"))) interrupt(shell, (String) request.get("id"));
            }
        } catch (IOException gone) {
            Runtime.getRuntime().halt(0);
        }
    }

    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(FileDescriptor.in)));
        System.setOut(new PrintStream(new Stream(STDOUT), true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(new Stream(STDERR), true, StandardCharsets.UTF_8));
        Input input = new Input();
        System.setIn(input);
        JShell shell = JShell.builder().executionEngine(new LocalExecutionControlProvider(), Map.of()).build();
        for (String name : List.of("java.io.*", "java.math.*", "java.util.*", "java.util.function.*", "java.util.stream.*"))
            shell.eval("import " + name + ";");
        sun.misc.Signal.handle(new sun.misc.Signal("INT"), signal -> { });  // for what it has started; it hears words
        sendControl("{\"type\":\"ready\"}");
        Thread listener = new Thread(() -> listen(shell, in));
        listener.setDaemon(true);
        listener.start();
        while (true) {
            Map<String, Object> request = requests.take();
            running = (String) request.get("id");
            int exitCode = runWith(shell, request, input);
            synchronized (requests) {
                running = newest = null;  // the guest sends the next run when it has heard of the end
            }
            sendControl("{\"type\":\"done\",\"count\":" + (++count) + ",\"exit_code\":" + exitCode + "}");
        }
    }
}
