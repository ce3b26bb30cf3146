package org.phonograd.keyboard;

import android.content.Context;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.json.JSONArray;
import org.phonograd.Keyboard;
import org.phonograd.RoundClient;
import org.phonograd.ServerConnection;
import org.phonograd.TextCollector;
import org.phonograd.Workspace;

/** Types what stdin says, and prints what is there after it: ARTIFACTS PERSONAL. A line of JSON for each line of JSON. */
public final class TypingDrive implements Typing.Field {
    private final StringBuilder text = new StringBuilder();
    private int composing;

    public static void main(String[] words) throws Exception {
        TypingDrive field = new TypingDrive();
        Keyboard keyboard = Keyboard.open(new File(words[0]), null, new File(words[1]));
        Typing typing = null;
        Workspace workspace = new Workspace(new Context());
        TextCollector collected = new TextCollector(workspace);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONArray told = new JSONArray(line); // its name, then what it needs
            switch (told.getString(0)) {
                case "field": // inputType, imeOptions, what is there, whether the model is open
                    field.text.replace(0, field.text.length(), told.getString(3));
                    field.composing = 0;
                    typing = new Typing(told.getBoolean(4) ? keyboard : null, field, new FieldRules(told.getInt(1), told.getInt(2)));
                    break;
                case "keys":
                    for (char key : told.getString(1).toCharArray()) typing.key(String.valueOf(key));
                    break;
                case "delete":
                    for (int time = told.getInt(1); time > 0; time--) typing.delete();
                    break;
                case "move": // the cursor, back
                    field.text.setLength(told.getInt(1));
                    break;
                case "add":
                    collected.add(told.getString(1));
                    break;
                case "phone": // its name at the server
                    field.commit(ServerConnection.read(workspace).phone);
                    break;
                case "enroll": // model.zip, server, phone, token
                    try (InputStream model = new FileInputStream(told.getString(1))) {
                        RoundClient.enroll(workspace, model, told.getString(2), told.getString(3), told.getString(4));
                    }
                    break;
                case "pick":
                    typing.pick(typing.strip().get(told.getInt(1)));
                    break;
                case "end":
                    collected.add(typing.end());
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            JSONArray learned = new JSONArray();
            for (Keyboard.PersonalWord word : keyboard.words()) learned.put(word.word + " " + word.count);
            System.out.println(new JSONArray().put(field.text.toString()).put(new JSONArray(typing.strip())).put(learned));
        }
    }

    @Override
    public void compose(String letters) {
        commit(letters);
        composing = letters.length();
    }

    @Override
    public void commit(String written) {
        text.setLength(text.length() - composing);
        text.append(written);
        composing = 0;
    }

    @Override
    public void delete(int characters) {
        text.setLength(Math.max(0, text.length() - characters));
    }

    @Override
    public String before() {
        return text.substring(Math.max(0, text.length() - 200));
    }
}
