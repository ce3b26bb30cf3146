import java.io.File;
import java.io.IOException;
import org.phonograd.ModelFiles;
import org.phonograd.ProgramException;

/** Pulls and quantizes, and prints what comes of it: BINARY ARTIFACTS FETCHED SHA256 MODEL QUANTIZED. */
public final class ModelDrive {
    public static void main(String[] words) throws IOException {
        File binary = new File(words[0]), artifacts = new File(words[1]), fetched = new File(words[2]);
        File model = new File(words[4]), quantized = new File(words[5]);
        ModelFiles files = new ModelFiles(binary);
        try {
            files.pull(fetched, null, new String(new char[64]).replace((char) 0, '0'), model);
        } catch (ProgramException error) {
            System.out.println("refused " + error.code + " " + error.outcome + " " + error.getMessage());
        }
        System.out.println("links " + files.pull(fetched, null, words[3], model));
        files.quantize(artifacts, model, quantized);
    }
}
