import java.io.StringReader;
import java.util.*;

/**
 * Prints what java.util.Properties makes of texts, one case a line: the text, then its keys and values, parted by tabs.
 * Recorded with: java RecordProperties.java > properties-java17.txt
 */
public class RecordProperties {
    static final String[] TEXTS = {
        "", "\n", "a=1", "a:1", "a 1", "a\t1", "a\f1", "a", "a=", "a:", "a = 1", "a : 1", "a  1", "a==1", "a=:1", "a= =1",
        "a =:1", "a : = 1", "=1", ":1", " = 1", "  a=1", "\t\fa=1", "a=1 ", "a=1\t", "# c\na=1", "! c\na=1",
        "  # c\na=1", "a=1 # c", "a#b=1", "a!b=1", "a=#1", "a=!1",
        "a=1\r\nb=2", "a=1\rb=2", "a=1\n\rb=2", "a=1\r\r\nb=2", "a=1\u0085b=2", "a\u00a0b=1", "a\u000bb=1", "a=\u00e91",
        "server.1=host\\:2888\\:3888", "dataDir=C\\:\\\\zk", "dataDir=C:\\zk", "a\\=b=c\\=d", "a\\:b:c\\:d", "a\\ b=c\\ d",
        "a\\#b=\\#", "\\#a=1", "\\!a=1", "a=\\t\\r\\n\\f\\b\\0\\x", "a=\\u00e9", "a=\\u00E9x", "a=\\\\u00e9", "a=\\ud83d\\ude00",
        "a\\u003db=1", "a\\u0020b=1", "\\u0023a=1", "a=\\u0009", "a=\\u", "a=\\u12", "a=\\u12g4", "a=\\U0041", "# \\u12\na=1",
        "a=1\\\nb=2", "a=1,\\\n   2,\\\n\t3", "a=1,\\\r\n  2", "a=1,\\\r  2", "a=1\\\\\nb=2", "a=1\\\\\\\n  b", "a=1\\\n\nb=2",
        "a=1\\\n  \nb=2", "a=1\\", "a=1\\\n", "a=\\", "a\\", "\\", "\\\n", "\\\n#a=1\nb=2", "\\\na=1", "a=\\\n#b", "a=\\\n!b\nc=d",
        "# c \\\na=1", "! c \\\na=1", "a\\\nb=1", "a\\\n  =1", "a\\\n  b", "a \\\n=1", "a \\\n = \\\n 1", "a=1\na=2", "a=1\nb=2\na=3",
        "a=\\ 1", "a=1\\ ", "a\\ =1", "a\\\t=1", "\ufeffa=1", "a=\\\r\\\n1", "   \\\n   a=1", "a=1\\\n\\\n2", "a = \\\n\\\n\\\n 1",
        "a=1\f", "\f\f\n a \f = \f 1", "key", "key\n", "a=\"1\"", "a='1'", "a=%PATH%", "a=${b}", "a;b=1", "[s]\na=1",
    };

    public static void main(String[] args) throws java.io.IOException {
        List<String> texts = new ArrayList<>(Arrays.asList(TEXTS));
        Random random = new Random(20250930);
        String[] parts = {"a", "b", "1", "=", ":", " ", "\t", "\f", "\\", "\\", "\n", "\r", "\r\n", "#", "!", "\\n", "\\u0041", "\\u",
            "\\\n", "\\\r\n", "\u00e9"};
        for (int i = 0; i < 400; i++) {
            StringBuilder text = new StringBuilder();
            for (int length = 1 + random.nextInt(14); length > 0; length--) text.append(parts[random.nextInt(parts.length)]);
            texts.add(text.toString());
        }
        for (String text : texts) {
            StringBuilder line = new StringBuilder(quote(text));
            try {
                Properties properties = new Properties();
                properties.load(new StringReader(text));
                for (Map.Entry<String, String> entry : new TreeMap<>(strings(properties)).entrySet())
                    line.append('\t').append(quote(entry.getKey())).append('\t').append(quote(entry.getValue()));
            } catch (IllegalArgumentException malformed) {
                line.append("\trefused");
            }
            System.out.println(line);
        }
    }

    static Map<String, String> strings(Properties properties) {
        Map<String, String> strings = new HashMap<>();
        properties.forEach((key, value) -> strings.put((String) key, (String) value));
        return strings;
    }

    /** Printable ASCII as it is, but for the backslash; all else as its UTF-16 units; what is empty stands in brackets. */
    static String quote(String text) {
        StringBuilder quoted = new StringBuilder("[");
        for (char c : text.toCharArray())
            if (c >= ' ' && c < 127 && c != '\\') quoted.append(c);
            else quoted.append(String.format("\\%04x", (int) c));
        return quoted.append(']').toString();
    }
}
